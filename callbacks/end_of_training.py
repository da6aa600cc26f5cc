"""Every end of training is validated, and one line says why it ended.

Lightning validates where its interval says so. A run that ends elsewhere (by a number of steps or
within an interval) would leave its last steps untested, and they are those with the lowest rate.
"""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer

from callbacks.module_contract import LogsTraining, steps_done


class EndOfTraining(pl.Callback):
    """Always on; must come after what limits the time and before what writes checkpoints."""

    def __init__(self) -> None:
        self.every_n_epochs: int | None = None  # what was asked for, while that is set aside
        self.has_trained = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.has_trained = True
        if trainer.max_steps >= 0 and not pl_module.automatic_optimization:
            trainer.print("--max_steps counts each optimizer's step, all other steps are batches")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any
    ) -> None:
        if are_steps_done(trainer) or (trainer.is_last_batch and is_last_epoch(trainer)):
            trainer.should_stop = True  # now Lightning validates, wherever in an interval this is
            # a limit overrules these, as it does in Lightning, which would not validate then
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
        every_n_epochs = trainer.check_val_every_n_epoch
        if trainer.should_stop and trainer.fit_loop._can_stop_early and every_n_epochs is not None:
            self.every_n_epochs, trainer.check_val_every_n_epoch = every_n_epochs, 1

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._put_back(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._put_back(trainer)
        # cut short: a module's own hook would come after callbacks'
        if not trainer.is_last_batch and isinstance(pl_module, LogsTraining):
            pl_module.log_training()

    def _put_back(self, trainer: pl.Trainer) -> None:
        if self.every_n_epochs is not None:
            trainer.check_val_every_n_epoch, self.every_n_epochs = self.every_n_epochs, None

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        place = f"epoch {trainer.current_epoch}, step {steps_done(trainer)}"
        trainer.print(f"training ended: {why_it_ends(trainer)} ({place})")

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self.has_trained:
            trainer.print(f"nothing is left to train: {why_it_ends(trainer)}")


def are_steps_done(trainer: pl.Trainer) -> bool:
    return 0 <= trainer.max_steps <= trainer.global_step


def is_last_epoch(trainer: pl.Trainer) -> bool:
    limit = trainer.max_epochs
    return limit is not None and 0 <= limit <= trainer.current_epoch + 1


def why_it_ends(trainer: pl.Trainer) -> str:
    """What has reached its limit, in words."""
    for stopping in trainer.early_stopping_callbacks:
        if stopping.stopping_reason_message:
            return f"early stopping, {stopping.stopping_reason_message}"
    if are_steps_done(trainer):
        by_itself = not trainer.lightning_module.automatic_optimization
        unit = "optimizer step" if by_itself else "step"  # each optimizer's
        return f"{everything(trainer.max_steps, unit)} done"
    limit, is_whole = trainer.max_epochs, trainer.is_last_batch
    if limit is not None and 0 <= limit <= trainer.current_epoch and is_whole:
        return f"{everything(limit, 'epoch')} done"
    for timer in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(timer, Timer) and (left := timer.time_remaining()) is not None and left <= 0:
            return "the time of --max_time is up"
    return "a callback asked for it"


def everything(number: int, unit: str) -> str:
    return f"the one {unit} is" if number == 1 else f"all {number:,} {unit}s are"
