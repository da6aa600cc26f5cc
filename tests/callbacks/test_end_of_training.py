"""Every end of training is validated and explained, and its line shows its own figures."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from callbacks.early_stopping import EarlyStopping
from callbacks.end_of_training import EndOfTraining
from callbacks.exact_resume import ExactResume
from callbacks.metrics_csv import MetricsCsv
from callbacks.progress import EpochProgress
from tests.callbacks.test_exact_resume import BatchClock, assert_same_run
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer


class Validated(pl.Callback):
    """Notes the steps after which a validation ended."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.steps += [trainer.global_step] * (not trainer.sanity_checking)


def fit(folder: Path, resume: bool = False, **arguments: Any) -> tuple[Validated, Checkpointing]:
    """Six batches an epoch; `seconds` is a clock of a second a batch."""
    data, validated = TinyImages(), Validated()
    checkpointing = Checkpointing(TinyRun(folder), monitor="val/loss")
    metrics = MetricsCsv(folder / "metrics.csv")
    limits: list[pl.Callback] = []
    if seconds := arguments.pop("seconds", None):
        limits.append(BatchClock(timedelta(seconds=seconds)))
    others = arguments.pop("others", [])
    early = arguments.pop("early_stopping", None)
    stopping: list[pl.Callback] = [EarlyStopping(**early)] if early else []
    trainer = tiny_trainer(
        folder,
        callbacks=[ExactResume(metrics), *limits, EndOfTraining(), checkpointing, *stopping,
                   *others, validated, EpochProgress()],
        logger=metrics,
        plugins=[AtomicCheckpointIO()],
        enable_progress_bar=True,
        **{"max_epochs": 3} | arguments,
    )  # fmt: skip
    path = folder / "last.ckpt" if resume else None
    trainer.fit(tiny_classifier(data), datamodule=data, ckpt_path=path)
    assert trainer.check_val_every_n_epoch == arguments.get("check_val_every_n_epoch", 1)
    return validated, checkpointing


NEVER_BETTER = {"min_delta": 1e6, "patience": 2}
ENDS: dict[str, tuple[dict[str, Any], int, str]] = {
    "epochs": ({}, 18, "all 3 epochs are done (epoch 3, step 18)"),
    "one step": ({"max_steps": 1}, 1, "the one step is done (epoch 1, step 1)"),
    "steps in the first epoch": ({"max_steps": 4}, 4, "all 4 steps are done (epoch 1, step 4)"),
    "steps later": ({"max_steps": 8}, 8, "all 8 steps are done (epoch 2, step 8)"),
    "steps at an epoch's end": (
        {"max_steps": 12},
        12,
        "all 12 steps are done (epoch 2, step 12)",
    ),
    "steps without epochs": (
        {"max_steps": 8, "max_epochs": -1},
        8,
        "all 8 steps are done (epoch 2, step 8)",
    ),
    "steps in windows": (
        {"max_steps": 4, "accumulate_grad_batches": 2},
        4,
        "all 4 steps are done (epoch 2, step 4)",
    ),
    "steps before the least epochs": (
        {"max_steps": 8, "min_epochs": 3},
        8,
        "all 8 steps are done (epoch 2, step 8)",
    ),
    "time": ({"seconds": 9}, 9, "the time of --max_time is up (epoch 2, step 9)"),
    "every second epoch": (
        {"check_val_every_n_epoch": 2},
        18,
        "all 3 epochs are done (epoch 3, step 18)",
    ),
    "steps, every second epoch": (
        {"check_val_every_n_epoch": 2, "max_steps": 4},
        4,
        "all 4 steps are done (epoch 1, step 4)",
    ),
    "time, every second epoch": (
        {"check_val_every_n_epoch": 2, "seconds": 15},
        15,
        "the time of --max_time is up (epoch 3, step 15)",
    ),
    "parts of an epoch": (
        {"val_check_interval": 4},
        18,
        "all 3 epochs are done (epoch 3, step 18)",
    ),
    "batches over epochs": (
        {"val_check_interval": 7, "check_val_every_n_epoch": None},
        18,
        "all 3 epochs are done (epoch 3, step 18)",
    ),
    "by the clock": (
        {"val_check_interval": "00:01:00:00"},
        18,
        "all 3 epochs are done (epoch 3, step 18)",
    ),
    "early stopping": (
        {"early_stopping": NEVER_BETTER},
        18,
        "early stopping, val/loss has not improved on # for 2 validations (epoch 3, step 18)",
    ),
    "early stopping in mid-epoch": (
        {"early_stopping": NEVER_BETTER, "val_check_interval": 0.5},
        9,
        "early stopping, val/loss has not improved on # for 2 validations (epoch 2, step 9)",
    ),
    "a threshold": (
        {"early_stopping": {"stopping_threshold": 9.0}, "val_check_interval": 2},
        2,
        "early stopping, val/loss # is better than 9 (--early_stopping.stopping_threshold) "
        "(epoch 1, step 2)",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_last_step_is_validated_and_the_end_explained(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, step, reason = ENDS[name]
    validated, checkpointing = fit(tmp_path, **arguments)
    assert validated.steps[-1] == step
    assert validated.steps == sorted(set(validated.steps))
    lines = capsys.readouterr().out.splitlines()
    numbered = re.sub(r"(?<= )\d\.\d{4}", "#", lines[-1])
    assert numbered == f"training ended: {reason}"
    assert checkpointing.best_path == tmp_path / "best.ckpt"
    best = torch.load(tmp_path / "best.ckpt", weights_only=True)["description"]
    assert best["scores"]


@pytest.mark.parametrize("name", ENDS)
def test_the_line_of_each_epoch_shows_what_the_table_holds(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(tmp_path, **ENDS[name][0])
    shown = re.findall(r"^epoch (\d+)\S*  train/loss (\S+)", capsys.readouterr().out, re.MULTILINE)
    table = MetricsCsv(tmp_path / "metrics.csv").rows
    kept = [
        (str(int(row["epoch"]) + 1), f"{float(row['train/loss']):.4f}")
        for row in table
        if row.get("train/loss")
    ]
    assert shown == kept
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize(
    "name", ["epochs", "steps later", "time", "early stopping", "early stopping in mid-epoch",
             "a threshold"],
)  # fmt: skip
def test_a_finished_run_says_so_and_trains_no_further(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, _, reason = ENDS[name]
    fit(tmp_path, **arguments)
    before = (tmp_path / "metrics.csv").read_text()
    capsys.readouterr()
    validated, checkpointing = fit(tmp_path, resume=True, **arguments)
    assert not validated.steps
    lines = capsys.readouterr().out.splitlines()
    reason = reason.rpartition(" (epoch")[0]
    numbered = re.sub(r"(?<= )\d\.\d{4}", "#", lines[-1])
    assert numbered == f"nothing is left to train: {reason}"
    assert checkpointing.best_path == tmp_path / "best.ckpt"
    assert (tmp_path / "metrics.csv").read_text() == before


class KilledIn(pl.Callback):
    """Ends the process in the validation after a step, without a word."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_validation_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise SystemExit(137)


@pytest.mark.parametrize("name", ["steps later", "steps in windows", "time", "epochs"])
def test_killed_in_the_last_validation_it_is_held_again(tmp_path: Path, name: str) -> None:
    arguments, step, _ = ENDS[name]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    fit(whole, **arguments)
    with pytest.raises(SystemExit):
        fit(parts, others=[KilledIn(step)], **arguments)
    validated, _ = fit(parts, resume=True, **arguments)
    assert validated.steps[-1] == step
    assert_same_run(parts, whole)
    assert sorted(path.name for path in parts.iterdir()) == sorted(
        path.name for path in whole.iterdir()
    )


def test_without_validation_data_it_ends_all_the_same(tmp_path: Path) -> None:
    validated, checkpointing = fit(tmp_path, max_steps=4, limit_val_batches=0)
    assert not validated.steps
    assert checkpointing.best_path == tmp_path / "last.ckpt"


def test_all_ranks_are_told_one_path(tmp_path: Path) -> None:
    """What rank 0 found, whatever the file system shows to another rank."""
    from types import SimpleNamespace

    asked: list[Path | None] = []

    def broadcast(found: Path | None) -> Path:
        asked.append(found)
        return Path("of rank 0")

    (tmp_path / "last.ckpt").touch()
    for rank in (0, 1):
        checkpointing = Checkpointing(TinyRun(tmp_path))
        trainer: Any = SimpleNamespace(
            is_global_zero=rank == 0, strategy=SimpleNamespace(broadcast=broadcast)
        )
        checkpointing.on_fit_end(trainer, None)
        assert checkpointing.best_path == Path("of rank 0")
    assert asked == [tmp_path / "last.ckpt", None]


@pytest.mark.parametrize(
    ("file", "place"), [("best.ckpt", ("1", "10")), ("last.ckpt", ("2", "15")), (None, ("3", "15"))]
)
def test_a_test_is_logged_at_the_place_of_the_tested_weights(
    tmp_path: Path, file: str | None, place: tuple[str, str]
) -> None:
    class Best(Checkpointing):
        """As if what the validation in mid-epoch found were the best."""

        def ranking(self, metrics: dict[str, float]) -> list[float]:
            return [float(self.best_key is None)]

        def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
            if trainer.global_step == 10:
                super().on_validation_end(trainer, pl_module)

    data, metrics = TinyImages(), MetricsCsv(tmp_path / "metrics.csv")
    checkpointing = Best(TinyRun(tmp_path))
    trainer = tiny_trainer(
        tmp_path,
        callbacks=[ExactResume(metrics), EndOfTraining(), checkpointing],
        logger=metrics,
        plugins=[AtomicCheckpointIO()],
        max_steps=15,
        max_epochs=3,
        val_check_interval=2,
    )
    model = tiny_classifier(data)
    trainer.fit(model, datamodule=data)
    path = str(tmp_path / file) if file else None
    trainer.test(model, datamodule=data, ckpt_path=path, verbose=False)
    row = metrics.rows[-1]
    assert row["test/accuracy"]
    assert (row["epoch"], row["step"]) == place


def test_only_scores_of_these_very_weights_stand_in_a_checkpoint(tmp_path: Path) -> None:
    fit(tmp_path, max_steps=8, limit_val_batches=0)
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)["description"]
    assert (last["epoch"], last["global_step"], last["scores"]) == (1, 8, {})
    (tmp_path / "other").mkdir()
    fit(tmp_path / "other", max_epochs=2, check_val_every_n_epoch=2)
    for name, step, has_scores in (("previous", 6, False), ("last", 12, True), ("best", 12, True)):
        found = torch.load(tmp_path / f"other/{name}.ckpt", weights_only=True)["description"]
        assert found["global_step"] == step
        assert bool(found["scores"]) == has_scores
