"""Loss and learning rate of the steps, for TensorBoard and W&B; metrics.csv has a row an epoch."""

from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger, TensorBoardLogger
from torch import Tensor

from callbacks.module_contract import loss_in, steps_done


class StepLog(pl.Callback):
    """Logs the mean loss since the last time, and the rate. Of this rank's batches.

    The sum stays on the device, which has to wait only when it is logged.

    Args:
        loggers: Where to.
        every_n_steps: Optimizer steps between two times.
    """

    def __init__(self, loggers: Sequence[Logger], every_n_steps: int) -> None:
        self.loggers = loggers
        self.every_n_steps = every_n_steps
        self.total: Tensor | None = None
        self.num_batches = 0

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        loss = loss_in(outputs)
        if loss is not None:
            self.total = loss if self.total is None else self.total + loss
            self.num_batches += 1
        is_within_window = (batch_idx + 1) % trainer.accumulate_grad_batches != 0
        if is_within_window and not trainer.is_last_batch:
            return
        step = steps_done(trainer)
        if self.total is None or step % self.every_n_steps:
            return
        (group, *_) = trainer.optimizers[0].param_groups
        values = {"train/loss_step": float(self.total) / self.num_batches, "lr_step": group["lr"]}
        self.total, self.num_batches = None, 0
        for logger in self.loggers:
            logger.log_metrics(values, step=step - 1)  # as a row of an epoch has it

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """TensorBoard's table of hyperparameters, with what they led to."""
        values = trainer.callback_metrics
        found = {name: float(value) for name, value in values.items() if name.startswith("test/")}
        step = int(values.get("step", steps_done(trainer)))
        for logger in self.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.log_hyperparams(logger.hparams, found, step)
