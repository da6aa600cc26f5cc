"""Stops when the monitored metric no longer improves.

While the schedule still lowers the rate, an improvement may yet come of that: patience is longer.
"""

import math
from typing import Annotated, Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning import callbacks as pl_callbacks
from pytorch_lightning.callbacks.early_stopping import EarlyStoppingReason
from torch import Tensor

from callbacks.logged_names import MonitoredName
from callbacks.module_contract import KnowsItsEnd, NamesMetrics

USUAL = "val/loss"
MIN_PATIENCE = 5  # of auto
SHARE = 5  # auto waits for one in so many of the planned validations


class EarlyStopping(pl_callbacks.EarlyStopping):
    """Lightning's early stopping, with the monitored name checked before training.

    Args:
        enabled: Whether to stop early at all.
        monitor: Metric to watch, such as val/loss. A module that does not announce its names has to
            have logged it when its first validation ends.
        mode: Whether smaller or larger is better; auto knows from the metric.
        patience: Validations without improvement before training ends; auto is 5, or a fifth of
            those planned where that is more and the schedule still lowers the rate.
        min_delta: Smallest change that counts as an improvement.
        stopping_threshold: Stop as soon as the metric is better than this.
    """

    def __init__(
        self,
        enabled: bool = True,
        monitor: str = USUAL,
        mode: Literal["auto", "min", "max"] = "auto",
        patience: Annotated[int, ">= 1"] | Literal["auto"] = "auto",
        min_delta: Annotated[float, ">= 0"] = 0.0,
        stopping_threshold: float | None = None,
    ) -> None:
        self.is_auto = patience == "auto"
        self.is_mode_auto = mode == "auto"
        self.monitored = MonitoredName("early_stopping", monitor, USUAL)
        self.rate_falls = True  # as it was when this was asked last
        self.reached_threshold: float | None = None
        super().__init__(
            monitor=monitor,
            mode="min" if mode == "auto" else mode,
            patience=MIN_PATIENCE if patience == "auto" else patience,
            min_delta=min_delta,
            stopping_threshold=stopping_threshold,
            strict=False,  # the name is checked in setup; an epoch cut short may lack a value
            check_finite=False,  # that is an error, not a reason to stop quietly
        )

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        # where validations go by the clock the Trainer lacks this number; Lightning asks for it
        if getattr(trainer, "val_check_interval", None) is None:
            self._check_on_train_epoch_end = False
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            direction = self.monitored.better(pl_module)
            if self.is_mode_auto and direction != self.mode:
                self._set_mode(direction)

    def _set_mode(self, mode: Literal["min", "max"]) -> None:
        sign = 1 if mode == "max" else -1
        self.mode, self.min_delta = mode, sign * abs(self.min_delta)
        self.best_score = torch.tensor(-sign * math.inf)

    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        should_stop, reason = super()._evaluate_stopping_criteria(current)
        if not should_stop:
            return False, reason
        if self.stopping_reason == EarlyStoppingReason.STOPPING_THRESHOLD:
            wanted = f"{self.stopping_threshold:g} (--early_stopping.stopping_threshold)"
            return True, f"{self.monitor} {float(current):.4f} is better than {wanted}"
        best, count = float(self.best_score), self.wait_count
        unit = "validation" if count == 1 else "validations"
        return True, f"{self.monitor} has not improved on {best:.4f} for {count} {unit}"

    def _run_early_stopping_check(self, trainer: pl.Trainer) -> None:
        if not self.monitored.is_logged(trainer, self.mode, "early stopping: off"):
            return
        self.rate_falls = rate_falls(trainer)
        self._set_patience(trainer)
        super()._run_early_stopping_check(trainer)

    def _set_patience(self, trainer: pl.Trainer) -> None:
        if self.is_auto:
            share = planned_validations(trainer) // SHARE if self.rate_falls else 0
            self.patience = max(MIN_PATIENCE, share)

    def state_dict(self) -> dict[str, Any]:
        reached = self.stopping_reason == EarlyStoppingReason.STOPPING_THRESHOLD
        return super().state_dict() | {
            "rate_falls": self.rate_falls,
            "reached_threshold": self.stopping_threshold if reached else None,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on with the patience of this run, which may be another than the checkpoint's."""
        super().load_state_dict(state_dict | {"patience": self.patience})
        self.rate_falls = state_dict.get("rate_falls", True)
        self.reached_threshold = state_dict.get("reached_threshold")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A run that was stopped, and has not got more patience since, is finished."""
        trainer.fit_loop.setup_data()  # else it is not yet known how many batches there are
        self._set_patience(trainer)
        threshold = self.reached_threshold
        is_reached = threshold is not None and threshold == self.stopping_threshold
        if self.stopping_reason_message and (is_reached or self.wait_count >= self.patience):
            trainer.should_stop = True

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.stopping_reason, self.stopping_reason_message = EarlyStoppingReason.NOT_STOPPED, None
        self.stopped_epoch = 0
        if not self.monitor.startswith("val/") or trainer.enable_validation:
            return
        if not isinstance(pl_module, NamesMetrics):
            self.monitored.is_checked, self.monitored.is_there = True, False
            trainer.print("early stopping: off, there is no validation")
        else:
            self.monitor = self.monitor.replace("val/", "train/", 1)
            pl_module.check_monitor("early_stopping", self.monitor)
            self._check_on_train_epoch_end = True
            trainer.print(f"early stopping: no validation data, watching {self.monitor} instead")


def rate_falls(trainer: pl.Trainer) -> bool:
    """Whether a schedule may yet lower the rate; of a fork's own it is taken to do so."""
    found = (config.scheduler for config in trainer.lr_scheduler_configs)
    return any(not isinstance(one, KnowsItsEnd) or one.still_falls for one in found)


def planned_validations(trainer: pl.Trainer) -> int:
    """How many a run of full length has; where they go by the clock, its epochs."""
    batches, every = trainer.num_training_batches, trainer.val_check_batch
    epochs = math.inf if trainer.max_epochs in (None, -1) else trainer.max_epochs
    if trainer.max_steps != -1:
        epochs = min(epochs, trainer.max_steps * trainer.accumulate_grad_batches / batches)
    if not math.isfinite(epochs):
        return 0
    if every is None or not math.isfinite(max(every, batches)):
        return int(epochs)
    if trainer.check_val_every_n_epoch is None:
        return int(epochs * batches / every)
    return int(epochs / trainer.check_val_every_n_epoch * (batches // every))
