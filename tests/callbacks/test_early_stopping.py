"""When training stops, and what is found out before it starts."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn

from callbacks.checkpointing import Checkpointing
from callbacks.early_stopping import EarlyStopping, planned_validations
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer


@pytest.mark.parametrize(
    ("losses", "patience", "min_delta", "expected"),
    [
        ([3, 2, 1, 1, 1, 1], 2, 0.0, 5),
        ([3, 2, 1, 0.5, 0.4], 2, 0.0, None),
        ([3, 2, 2.5, 2.4, 2.3], 3, 0.0, 5),
        ([3, 2.95, 2.9, 2.85], 2, 0.2, 3),
        ([1, 2], 1, 0.0, 2),
    ],
)
def test_patience_counts_validations(losses, patience, min_delta, expected) -> None:
    stopping = EarlyStopping(patience=patience, min_delta=min_delta)
    stopped = None
    for number, loss in enumerate(losses, start=1):
        if stopping._evaluate_stopping_criteria(torch.tensor(float(loss)))[0]:
            stopped = number
            break
    assert stopped == expected


def test_a_misspelt_metric_is_found_before_the_first_epoch(tmp_path: Path) -> None:
    data = TinyImages()
    trainer = tiny_trainer(tmp_path, callbacks=[EarlyStopping(monitor="val_los")])
    message = r"--early_stopping.monitor val_los: .* did you mean val/loss\? \(available: train/"
    with pytest.raises(ValueError, match=message):
        trainer.fit(tiny_classifier(data), datamodule=data)
    assert trainer.global_step == 0


def test_only_a_name_that_is_logged_is_accepted() -> None:
    data = TinyImages()
    data.setup()
    model = tiny_classifier(data)
    model.check_monitor("early_stopping", "val/f1")
    with pytest.raises(ValueError, match=r"val/f2: nothing logs that name; did you mean val/f1\?"):
        model.check_monitor("early_stopping", "val/f2")


@pytest.mark.parametrize(
    ("monitor", "mode"),
    [("val/loss", "min"), ("val/calibration_error", "min"), ("val/f1", "max")],
)
def test_the_direction_is_that_of_the_metric(tmp_path: Path, monitor: str, mode: str) -> None:
    data = TinyImages()
    data.setup()
    stopping = EarlyStopping(monitor=monitor)
    checkpointing = Checkpointing(TinyRun(tmp_path), monitor=monitor)
    trainer = tiny_trainer(tmp_path)
    trainer.state.fn = TrainerFn.FITTING
    for callback in (stopping, checkpointing):
        callback.setup(trainer, tiny_classifier(data), "fit")
        assert callback.mode == mode
    assert stopping.best_score == (math.inf if mode == "min" else -math.inf)


def test_a_metric_that_is_to_rise_is_watched_rising(tmp_path: Path) -> None:
    data, stopping = TinyImages(), EarlyStopping(monitor="val/accuracy", patience=2)
    trainer = tiny_trainer(tmp_path, callbacks=[stopping], max_epochs=5)
    trainer.fit(tiny_classifier(data), datamodule=data)
    assert 0.5 < float(stopping.best_score) <= 1
    assert stopping.mode == "max"


class FrozenLoss(pl.Callback):
    """Counts validations."""

    def __init__(self) -> None:
        self.num_validations = 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.num_validations += not trainer.sanity_checking


@pytest.mark.parametrize("every", [1, 2])
def test_validations_are_counted_not_epochs(tmp_path: Path, every: int) -> None:
    data, counter = TinyImages(), FrozenLoss()
    stopping = EarlyStopping(patience=2, min_delta=1e6)  # nothing is ever an improvement
    trainer = tiny_trainer(
        tmp_path, callbacks=[stopping, counter], max_epochs=20, check_val_every_n_epoch=every
    )
    trainer.fit(tiny_classifier(data), datamodule=data)
    assert counter.num_validations == 3
    assert trainer.current_epoch == 3 * every


def test_without_validation_data_the_training_metric_is_watched(tmp_path: Path, capsys) -> None:
    data = TinyImages()
    stopping = EarlyStopping(patience=2, min_delta=1e6)
    trainer = tiny_trainer(tmp_path, callbacks=[stopping], max_epochs=20, limit_val_batches=0)
    trainer.fit(tiny_classifier(data), datamodule=data)
    assert "no validation data, watching train/loss instead" in capsys.readouterr().out
    assert trainer.current_epoch == 3


@pytest.mark.parametrize(
    ("changes", "planned"),
    [
        ({}, 60),
        ({"check_val_every_n_epoch": 3}, 20),
        ({"val_check_batch": 5}, 120),
        ({"val_check_batch": 4}, 120),  # after 4 and 8 of 10
        ({"val_check_batch": 25, "check_val_every_n_epoch": None}, 24),
        ({"max_steps": 300}, 30),
        ({"max_steps": 100, "accumulate_grad_batches": 2}, 20),
        ({"max_steps": 300, "max_epochs": -1}, 30),
        ({"max_epochs": -1}, 0),
        ({"val_check_batch": None}, 60),  # by the clock
        ({"num_training_batches": math.inf}, 60),
        ({"num_training_batches": math.inf, "max_epochs": -1, "max_steps": 9}, 0),
    ],
)
def test_planned_validations(changes: dict, planned: int) -> None:
    usual = {"max_epochs": 60, "max_steps": -1, "num_training_batches": 10, "val_check_batch": 10,
             "check_val_every_n_epoch": 1, "accumulate_grad_batches": 1}  # fmt: skip
    trainer: Any = SimpleNamespace(**usual | changes)
    assert planned_validations(trainer) == planned


@pytest.mark.parametrize(
    ("patience", "schedule", "max_epochs", "ends"),
    [
        ("auto", "cosine", 40, 9),  # a fifth of 40, after the first
        ("auto", "onecycle", 10, 6),
        ("auto", "constant", 40, 6),
        ("auto", "warmup_cosine_plateau", 40, 9),
        (3, "cosine", 40, 4),
    ],
)
def test_patience_lasts_while_the_rate_falls(
    tmp_path: Path, patience: Any, schedule: str, max_epochs: int, ends: int
) -> None:
    data = TinyImages(batch_size=48)
    stopping = EarlyStopping(patience=patience, min_delta=1e6)
    trainer = tiny_trainer(tmp_path, callbacks=[stopping], max_epochs=max_epochs)
    trainer.fit(tiny_classifier(data, schedule={"name": schedule}), datamodule=data)
    assert trainer.current_epoch == ends


def test_patience_is_short_again_once_the_rate_has_fallen() -> None:
    trainer: Any = SimpleNamespace(
        **{"max_epochs": 60, "max_steps": -1, "num_training_batches": 10, "val_check_batch": 10},
        **{"check_val_every_n_epoch": 1, "accumulate_grad_batches": 1},
    )
    stopping = EarlyStopping()
    found = []
    for stopping.rate_falls in (True, False):
        stopping._set_patience(trainer)
        found.append(stopping.patience)
    assert found == [12, 5]


def test_a_run_of_steps_alone_has_patience_too(tmp_path: Path) -> None:
    data = TinyImages()
    trainer = tiny_trainer(tmp_path, callbacks=[EarlyStopping()], max_epochs=-1, max_steps=8)
    trainer.fit(tiny_classifier(data), datamodule=data)
    assert trainer.global_step == 8
