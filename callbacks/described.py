"""Writes into every checkpoint what rebuilds the run, whatever module trains."""

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl

from callbacks.module_contract import steps_done


class Described(pl.Callback):
    """Always on; a module that writes a description of its own has the last word.

    Args:
        description: What a checkpoint must say so that a fresh process can go on; plain values.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.description = dict(description)
        self.validated_step = -1
        self.scores: dict[str, float] = {}

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking:
            logged = trainer.callback_metrics.items()
            self.scores = {n: float(value) for n, value in logged if not n.startswith("train")}
            self.validated_step = steps_done(trainer)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        epochs: Any = trainer.fit_loop.epoch_progress.current
        step = steps_done(trainer)
        checkpoint["description"] = {
            **self.description,
            "epoch": max(0, epochs.started - 1),
            "global_step": step,
            # scores of these very weights, or none
            "scores": self.scores if step == self.validated_step else {},
        }

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if trainer.state.fn == "fit" and (found := checkpoint.get("description")):
            self.scores = dict(found.get("scores", {}))
            self.validated_step = found.get("global_step", -1)
