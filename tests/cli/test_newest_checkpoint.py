"""Which checkpoint is found, and what is taken where it is damaged."""

from pathlib import Path

import pytest
import torch

from cli.configuration import resumed_checkpoint
from cli.newest_checkpoint import newest_checkpoint, whole_checkpoint
from cli.settings import read_arguments
from lightning_modules.checkpoint import DamagedCheckpoint


def make_run(folder: Path, name: str, seed: int, *files: str) -> None:
    (folder / "a" / name / "checkpoints").mkdir(parents=True)
    (folder / "a" / name / "config.yaml").write_text(f"seed: {seed}\noptimizer:\n  lr: 0.001\n")
    for file in files:
        (folder / "a" / name / "checkpoints" / file).touch()


def test_the_newest_run_with_a_checkpoint_and_these_settings(tmp_path: Path) -> None:
    make_run(tmp_path, "2024-01-01_00-00-00-aa", 1, "last.ckpt", "best.ckpt")
    make_run(tmp_path, "2025-01-01_00-00-00-aa", 2, "previous.ckpt")
    make_run(tmp_path, "2026-01-01_00-00-00-aa", 1)

    def found(**wanted: str) -> str:
        path = newest_checkpoint(str(tmp_path), "a", wanted)
        return f"{path.parents[1].name[:4]} {path.name}"

    assert found() == "2025 previous.ckpt"
    assert found(seed="1") == "2024 last.ckpt"
    assert found(**{"seed": "1", "optimizer.lr": "1e-3"}) == "2024 last.ckpt"
    assert found(seed="3") == "2025 previous.ckpt"
    with pytest.raises(FileNotFoundError, match="--resume auto: no run in"):
        newest_checkpoint(str(tmp_path), "b", {})


@pytest.mark.parametrize(
    ("job", "array", "own"),
    [("7", None, "2024"), ("9", "8_1", "2025"), ("10", "8_2", "2026"), ("11", None, None)],
)
@pytest.mark.parametrize("resume", [[], ["--resume", "auto"]])
def test_a_job_that_was_put_back_goes_on_with_its_own_run(
    tmp_path: Path, monkeypatch, job: str, array: str | None, own: str | None, resume: list[str]
) -> None:
    """Tasks of an array, and jobs that began later, share the experiment's folder."""
    for year, name in (("2024", "7"), ("2025", "8_1"), ("2026", "8_2"), ("2027", "12")):
        make_run(tmp_path, f"{year}-01-01_00-00-00-aa", 1, "last.ckpt")
        (tmp_path / "a" / f"{year}-01-01_00-00-00-aa" / "slurm_jobs").write_text(f"5\n{name}\n")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    if array:
        monkeypatch.setenv("SLURM_ARRAY_JOB_ID", array.split("_")[0])
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", array.split("_")[1])
    monkeypatch.setattr("cli.configuration.whole_checkpoint", lambda path: (path, []))
    words = ["--runs_dir", str(tmp_path), "--experiment", "a", *resume]
    found = resumed_checkpoint(read_arguments(words))
    if own is None and not resume:
        assert found is None
    else:
        assert Path(found).parents[1].name[:4] == (own or "2027")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.save({"w": torch.randn(3000), "n": 1}, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


def test_the_newest_whole_one_is_taken(checkpoint: Path) -> None:
    best = checkpoint.with_name("best.ckpt")
    best.write_bytes(checkpoint.read_bytes())
    assert whole_checkpoint(checkpoint) == (checkpoint, [])
    checkpoint.write_bytes(b"")
    checkpoint.with_name("previous.ckpt").write_bytes(b"PK")
    found, notes = whole_checkpoint(checkpoint)
    assert found == best
    assert len(notes) == 3
    assert notes[-1] == f"going on from {best} instead"
    best.unlink()
    with pytest.raises(DamagedCheckpoint, match="last.ckpt is damaged.*previous.ckpt is damaged"):
        whole_checkpoint(checkpoint)
