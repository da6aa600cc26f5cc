"""Figures that a module logs over an epoch are those of the whole epoch, also after a resume."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from callbacks.described import Described
from callbacks.exact_resume import ExactResume
from callbacks.logged_sums import LoggedSums
from callbacks.metrics_csv import MetricsCsv
from callbacks.module_contract import steps_done
from lightning_modules.batch import tensors_of
from tests.tiny import TinyImages, TinyRun, tiny_trainer


class Logs(pl.LightningModule):
    """Logs by every reduction; optimizes by itself, twice a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        self.seen: list[int] = []

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(self.parameters(), 1e-5) for _ in range(2)]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.seen.append(steps_done(self.trainer))
        (images,) = tensors_of(batch[0])
        loss = nn.functional.cross_entropy(self.layers(images.float()), batch[1])
        for optimizer in self.optimizers():  # type: ignore[union-attr]
            optimizer.zero_grad()
            self.manual_backward(loss, retain_graph=True)
            optimizer.step()
        settings = {"on_step": False, "on_epoch": True}
        self.log("train/mean", loss, **settings)
        self.log("train/sum", loss, reduce_fx="sum", **settings)
        self.log("train/largest", loss, reduce_fx="max", **settings)
        self.log("train/step", loss, on_step=True, on_epoch=False, logger=False)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None: ...


class StopsAt(pl.Callback):
    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if steps_done(trainer) == self.batch:
            raise KeyboardInterrupt


def fit(folder: Path, stop: int = -1, has_sums: bool = True) -> tuple[Logs, MetricsCsv]:
    """Six batches an epoch, a checkpoint before every step."""
    torch.manual_seed(0)
    module, metrics = Logs(), MetricsCsv(folder / "metrics.csv")
    checkpointing = Checkpointing(TinyRun(folder), "1")
    sums = [LoggedSums()] if has_sums else []
    trainer = tiny_trainer(
        folder,
        callbacks=[Described({}), ExactResume(metrics), *sums, checkpointing, StopsAt(stop)],
        logger=metrics,
        plugins=[AtomicCheckpointIO()],
        max_epochs=2,
    )
    path = folder / "last.ckpt"
    try:
        trainer.fit(module, datamodule=TinyImages(), ckpt_path=path if path.is_file() else None)
    except (KeyboardInterrupt, SystemExit):
        assert len(module.seen) < 12
    return module, metrics


@pytest.mark.parametrize("stop", [4, 6, 9])
def test_an_epoch_that_goes_on_has_the_figures_of_a_whole_one(tmp_path: Path, stop: int) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    module, expected = fit(whole)
    assert module.seen == list(range(12))  # batches, not the steps of both optimizers
    assert {"train/mean", "train/sum", "train/largest"} < set(expected.columns)
    fit(parts, stop)
    again, found = fit(parts)
    assert again.seen == list(range(stop, 12))
    assert found.rows == expected.rows


def test_without_it_they_are_those_of_the_rest(tmp_path: Path) -> None:
    _, expected = fit(tmp_path / "whole", has_sums=False)
    fit(tmp_path / "parts", 4, has_sums=False)
    _, found = fit(tmp_path / "parts", has_sums=False)
    assert found.rows[0]["train/sum"] != expected.rows[0]["train/sum"]
    assert found.rows[1] == expected.rows[1]


def test_a_checkpoint_is_described_without_the_module(tmp_path: Path) -> None:
    fit(tmp_path, 4)
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert saved["description"] == {"epoch": 0, "global_step": 4, "scores": {}}
    assert saved["global_step"] == 8  # of Lightning
