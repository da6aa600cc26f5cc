"""Which checkpoint is found, what counts as damaged, and what a resumed run may change."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning.utilities import rank_zero_only
from rich.console import Console

from cli.configuration import resumed_checkpoint
from cli.resume import (
    DamagedCheckpoint,
    check_changes,
    check_place,
    check_same_training,
    check_whole,
    newest_checkpoint,
    whole_checkpoint,
)
from cli.settings import read_arguments


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


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_flipped_bit_is_noticed(checkpoint: Path, share: float) -> None:
    check_whole(checkpoint)
    content = bytearray(checkpoint.read_bytes())
    content[int(share * len(content))] ^= 4
    checkpoint.write_bytes(content)
    with pytest.raises(DamagedCheckpoint, match="last.ckpt is damaged"):
        check_whole(checkpoint)


@pytest.mark.parametrize("length", [0, 1, 500, 11000])
def test_a_file_that_is_cut_off(checkpoint: Path, length: int) -> None:
    checkpoint.write_bytes(checkpoint.read_bytes()[:length])
    with pytest.raises(DamagedCheckpoint):
        check_whole(checkpoint)


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


BEFORE = {
    "max_epochs": 2,
    "max_time": None,
    "seed": 0,
    "logger": "csv",
    "schedule": {"name": "cosine", "warmup": 0.1},
    "optimizer": {"name": "adamw", "lr": 0.1},
    "export": {"formats": "default"},
}
STEADY = BEFORE | {"schedule": {"name": "constant", "warmup": 0.0}}


@pytest.mark.parametrize(
    ("before", "change", "allowed", "error"),
    [
        (BEFORE, {}, False, None),
        (BEFORE, {"logger": "wandb", "export": {"formats": "all"}}, False, None),
        (BEFORE, {"max_epochs": 3}, False, "another max_epochs would not be the same"),
        (BEFORE, {"max_epochs": 3}, True, None),
        (STEADY, {"max_epochs": 3}, False, None),
        (BEFORE, {"max_time": "00:01:00:00"}, False, None),  # it ends a run, and changes no rate
        (BEFORE, {"seed": 1, "logger": "wandb"}, False, "another seed would not be the same"),
        (BEFORE, {"optimizer": {"name": "sgd", "lr": 0.1}}, True, "cannot change optimizer.name"),
    ],
)
def test_changes(before: dict, change: dict, allowed: bool, error: str | None) -> None:
    console = Console(file=io.StringIO())
    if error is None:
        check_changes(before, before | change, allowed, console)
    else:
        with pytest.raises(ValueError, match=error):
            check_changes(before, before | change, allowed, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert bool(shown) == bool(change)
    assert all(name in shown for name in change)


@pytest.mark.parametrize(
    ("rates", "shown"),
    [
        ((1e-5, 5.034e-3), "; the rate jumps from 1.00e-05 to 5.03e-03"),
        ((5e-3, 1e-5), "; the rate jumps from 5.00e-03 to 1.00e-05"),
        ((1e-3, 1.001e-3), ""),
        (None, ""),
    ],
)
def test_a_jump_of_the_rate_is_shown_before_it_is_allowed(
    rates: tuple[float, float] | None, shown: str
) -> None:
    console = Console(file=io.StringIO(), width=200)
    now = BEFORE | {"seed": 1, "max_epochs": 3, "logger": "wandb"}
    with pytest.raises(ValueError, match="another max_epochs"):
        check_changes(BEFORE, now, False, console, rates)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    (line,) = (line.rstrip() for line in lines if line.startswith("max_epochs"))
    assert line.endswith(f"changes the training{shown}")
    assert sum("jumps" in line for line in lines) == bool(shown)


@pytest.mark.parametrize(
    ("place", "change", "refused"),
    [
        ({"position": 3}, {"data": {"batch_size": 16}}, "--data.batch_size"),
        ({"position": 3}, {"accumulate_grad_batches": 4}, "--accumulate_grad_batches"),
        ({"position": 3}, {"seed": 2}, None),
        ({"position": 0}, {"data": {"batch_size": 16}}, None),
        ({"position": 3, "samples": 24}, {"data": {"batch_size": 16}}, None),
        ({}, {"data": {"batch_size": 16}}, None),
    ],
)
def test_an_older_checkpoint_within_an_epoch_takes_no_other_batches(
    place: dict, change: dict, refused: str | None
) -> None:
    before = {"seed": 1, "data": {"batch_size": 8}, "accumulate_grad_batches": 2}
    if refused is None:
        check_place("a.ckpt", place, before, before | change)
        return
    with pytest.raises(ValueError, match=f"a.ckpt was written by an earlier .*leave {refused} as"):
        check_place("a.ckpt", place, before, before | change)


@pytest.mark.parametrize("rank", [0, 1])
def test_what_a_resume_changes_is_told_once_on_several_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", rank)
    for name in ("misplaced", "check_place", "resumed_rate"):  # each has tests of its own
        monkeypatch.setattr(f"cli.resume.{name}", lambda *_: None)
    monkeypatch.setattr(
        "cli.configuration.whole_checkpoint", lambda path: (path, ["the newest one is damaged"])
    )
    (tmp_path / "last.ckpt").touch()
    resumed_checkpoint(read_arguments(["--resume", str(tmp_path / "last.ckpt")]))
    stored = {"config": BEFORE, "fingerprint": "a"}
    data = SimpleNamespace(train_dataloader=list)
    now = {"config": BEFORE | {"seed": 5}, "fingerprint": "a"}
    check_same_training("last.ckpt", {"description": stored}, now, data, True)
    out = capsys.readouterr().out
    told = ["changed on resume" in out, "damaged" in out, bool(out)]
    assert told == [rank == 0] * 3
