"""Exponential moving average of the weights: what is validated, saved, tested and exported."""

from functools import partial
from typing import Annotated, Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor


class EMA(WeightAveraging):
    """Lightning's weight averaging with a decay that rises, so that short runs are not held back.

    Args:
        enabled: Whether to average.
        decay: Final decay of the average; step n uses min(decay, (1 + n) / (10 + n)).
    """

    def __init__(self, enabled: bool = False, decay: Annotated[float, "0 < x < 1"] = 0.999) -> None:
        super().__init__(avg_fn=partial(moving_average, decay))

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        # made in float32, before Lightning converts the weights; fewer bits would never move
        if self._average_model is not None and trainer.precision == "64-true":
            self._average_model.double()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if trainer.state.fn == "fit":
            super().on_save_checkpoint(trainer, pl_module, checkpoint)

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # outside the fit the averaged weights are what is wanted, and "state_dict" holds them
        if trainer.state.fn == "fit":
            super().on_load_checkpoint(trainer, pl_module, checkpoint)


def moving_average(
    decay: float, average: Tensor, current: Tensor, num_averaged: Tensor | int
) -> Tensor:
    """The new average, of the shape of both; `num_averaged` counts those before."""
    if not (average.is_floating_point() or average.is_complex()):
        return current  # counters such as BatchNorm's number of batches
    rising = (1 + int(num_averaged)) / (10 + int(num_averaged))
    return torch.lerp(current.to(average.dtype), average, min(decay, rising))
