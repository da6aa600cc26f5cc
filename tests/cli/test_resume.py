"""What a resumed run may change, and who works in its folder."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from pytorch_lightning.utilities import rank_zero_only
from rich.console import Console

from cli.configuration import resumed_checkpoint
from cli.resume import (
    changed_settings,
    check_changes,
    check_place,
    check_same_training,
)
from cli.settings import read_arguments

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
    ],
)
def test_changes(before: dict, change: dict, allowed: bool, error: str | None) -> None:
    console, now = Console(file=io.StringIO()), before | change
    changed = changed_settings(before, now)
    assert bool(changed) == bool(change)
    if error is None:
        check_changes(changed, now["schedule"], allowed, console)
    else:
        with pytest.raises(ValueError, match=error):
            check_changes(changed, now["schedule"], allowed, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
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
        check_changes(changed_settings(BEFORE, now), now["schedule"], False, console, rates)
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
    changed = changed_settings(before, before | change)
    if refused is None:
        check_place("a.ckpt", place, changed)
        return
    with pytest.raises(ValueError, match=f"a.ckpt was written by an earlier .*leave {refused} as"):
        check_place("a.ckpt", place, changed)


@pytest.mark.parametrize("rank", [0, 1])
def test_what_a_resume_changes_is_told_once_on_several_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", rank)
    for name in ("check_resumable", "check_place", "resumed_rate"):  # each has tests of its own
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
