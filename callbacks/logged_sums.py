"""What a module logs with `self.log` over an epoch goes on where a resumed epoch does.

Lightning saves no sums of an epoch, so that a mean would be that of the rest alone. Modules of this
project keep tables of their own instead, and have nothing here.
"""

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

SUMS = "logged_sums"
STATES = ("value", "cumulated_batch_size")


class LoggedSums(pl.Callback):
    """Always on."""

    def __init__(self) -> None:
        self.earlier: dict[str, dict[str, Tensor]] = {}  # of this epoch, before the checkpoint

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        progress = trainer.fit_loop.epoch_loop.batch_progress
        if trainer.state.fn != "fit" or progress.is_last_batch or not progress.current.completed:
            return  # no epoch is going on
        mine = dict(self.earlier)
        for key, result in sums_of(trainer).items():
            mine[key] = {n: getattr(result, n).clone() for n in STATES if hasattr(result, n)}
        of_ranks: list[Any] = [mine]
        if trainer.world_size > 1:
            of_ranks *= trainer.world_size
            torch.distributed.all_gather_object(of_ranks, mine)
        if any(of_ranks):
            checkpoint[SUMS] = of_ranks

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        of_ranks = checkpoint.get(SUMS, [])
        if trainer.state.fn == "fit" and trainer.global_rank < len(of_ranks):
            self.earlier = of_ranks[trainer.global_rank]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any
    ) -> None:
        """A name exists once it is logged again: what came before is added to its first value."""
        if not self.earlier:
            return
        for key, result in sums_of(trainer).items():
            is_extreme = result.meta.is_max_reduction or result.meta.is_min_reduction
            join = result.meta.reduce_fx if is_extreme else torch.add
            for name, before in self.earlier.pop(key, {}).items():
                here = getattr(result, name)
                setattr(result, name, join(before.to(here.device), here))
            result._computed = None

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.earlier = {}


def sums_of(trainer: pl.Trainer) -> dict[str, Any]:
    """Lightning's own sums of this epoch so far, by the place and the name they are logged at."""
    results: Any = trainer.fit_loop.epoch_loop._results
    return {
        key: result
        for key, result in results.items()
        if result.is_tensor and result.meta.on_epoch and not result.has_reset
    }
