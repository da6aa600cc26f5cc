"""Loss and rate of steps reach the loggers, at intervals and without a wait in between."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.loggers import Logger

from callbacks.step_log import StepLog
from cli.trainer import build_loggers
from tests.tiny import TinyImages, tiny_classifier, tiny_trainer


class Notes(Logger):
    """Keeps what is logged."""

    name, version = "notes", ""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    def log_hyperparams(self, *arguments: Any, **others: Any) -> None: ...

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, metrics))


@pytest.mark.parametrize(
    ("every", "window", "steps"),
    [(1, 1, range(12)), (4, 1, [3, 7, 11]), (5, 1, [4, 9]), (2, 4, [1, 3]), (50, 1, [])],
)
def test_every_n_optimizer_steps(tmp_path: Path, every: int, window: int, steps: list[int]) -> None:
    data, notes = TinyImages(), Notes()
    trainer = tiny_trainer(
        tmp_path,
        callbacks=[StepLog([notes], every)],
        max_epochs=2,
        accumulate_grad_batches=window,
    )
    trainer.fit(tiny_classifier(data, schedule={"name": "cosine"}), datamodule=data)
    assert [step for step, _ in notes.rows] == list(steps)
    assert all(set(row) == {"train/loss_step", "lr_step"} for _, row in notes.rows)
    rates = [row["lr_step"] for _, row in notes.rows]
    assert len(set(rates)) == len(rates)


def test_the_mean_over_the_steps_since(tmp_path: Path) -> None:
    data, notes = TinyImages(), Notes()
    model = tiny_classifier(data)
    trainer = tiny_trainer(tmp_path, callbacks=[StepLog([notes], 6)])
    trainer.fit(model, datamodule=data)
    ((_, row),) = notes.rows
    assert row["train/loss_step"] == pytest.approx(model.reports["train"].scalars["loss"], rel=1e-4)


def test_nothing_is_read_from_the_device_in_between() -> None:
    class Loss(torch.Tensor):
        """A loss that must not be read."""

        def __float__(self) -> float:
            raise AssertionError

    log = StepLog([], 10)
    trainer: Any = tiny_trainer(None)
    for batch_idx in range(3):
        trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total \
            .completed = batch_idx + 1  # fmt: skip
        log.on_train_batch_end(trainer, None, {"loss": Loss(())}, None, batch_idx)
    assert log.num_batches == 3


def test_tensorboard_has_steps_and_hyperparameters_with_a_real_figure(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loggers = build_loggers({"logger": "tensorboard", "seed": 3}, tmp_path)
    data = TinyImages()
    model = tiny_classifier(data)
    trainer = tiny_trainer(tmp_path, callbacks=[StepLog(loggers, 3)], logger=loggers)
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    trainer.test(model, datamodule=data, ckpt_path=tmp_path / "a.ckpt", verbose=False)
    for logger in loggers:
        logger.finalize("success")
    names: dict[str, list[int]] = {}
    for path in (tmp_path / "tensorboard").rglob("events*"):
        events = EventAccumulator(str(path))
        events.Reload()
        for name in events.Tags()["scalars"]:
            names.setdefault(name, []).extend(event.step for event in events.Scalars(name))
    assert names["train/loss_step"] == names["lr_step"] == [2, 5]
    assert set(names["test/accuracy"]) == {6}
    assert not [name for name in names if "hp_metric" in name]
    assert torch.isfinite(trainer.callback_metrics["test/accuracy"])
