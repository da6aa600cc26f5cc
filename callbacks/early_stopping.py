"""Stops when the monitored metric no longer improves, and at once when the loss is not finite."""

import difflib
import math
from typing import Any, Literal

import pytorch_lightning as pl
from pytorch_lightning import callbacks as pl_callbacks


class NonFiniteLossError(RuntimeError):
    """Training cannot go on: a loss became NaN or infinite."""


class EarlyStopping(pl_callbacks.EarlyStopping):
    """Lightning's early stopping, with the monitored name checked before training.

    Args:
        enabled: Whether to stop early at all.
        monitor: Metric to watch, such as val/loss.
        mode: Whether smaller or larger is better; auto knows from the name.
        patience: Validations without improvement before training ends.
        min_delta: Smallest change that counts as an improvement.
        stopping_threshold: Stop as soon as the metric is better than this.
        check_finite_every: Optimizer batches between looks at the loss being finite.
    """

    def __init__(
        self,
        enabled: bool = True,
        monitor: str = "val/loss",
        mode: Literal["auto", "min", "max"] = "auto",
        patience: int = 5,
        min_delta: float = 0.0,
        stopping_threshold: float | None = None,
        check_finite_every: int = 50,
    ) -> None:
        if patience < 1 or min_delta < 0 or check_finite_every < 1:
            raise ValueError(
                "--early_stopping.patience and check_finite_every must be at least 1 and "
                f"min_delta at least 0; got {patience}, {check_finite_every}, {min_delta}"
            )
        super().__init__(
            monitor=monitor,
            mode=better_direction(monitor) if mode == "auto" else mode,
            patience=patience,
            min_delta=min_delta,
            stopping_threshold=stopping_threshold,
            strict=False,  # the name is checked in setup; an epoch cut short may lack a value
            check_finite=False,  # a non-finite loss is an error here, not a reason to stop quietly
        )
        self.check_finite_every = check_finite_every

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            check_monitor(self.monitor, pl_module.metric_names, "early_stopping")

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self.monitor.startswith("val/") and not trainer.enable_validation:
            self.monitor = self.monitor.replace("val/", "train/", 1)
            self._check_on_train_epoch_end = True
            trainer.print(f"early stopping: no validation data, watching {self.monitor} instead")

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if (batch_idx + 1) % self.check_finite_every == 0:
            self.stop_if_not_finite(trainer, bool(pl_module.train_counts.totals[1] > 0))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if "train" in pl_module.reports:
            self.stop_if_not_finite(trainer, not math.isfinite(pl_module.reports["train"].loss))
        super().on_train_epoch_end(trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self.stop_if_not_finite(trainer, not math.isfinite(pl_module.reports["val"].loss))
        super().on_validation_end(trainer, pl_module)

    def stop_if_not_finite(self, trainer: pl.Trainer, found_here: bool) -> None:
        """Ends training on all ranks if any of them saw a non-finite loss.

        Raises:
            NonFiniteLossError: With the step and what to try.
        """
        if trainer.strategy.reduce_boolean_decision(found_here, all=False):
            raise NonFiniteLossError(
                f"the loss became NaN or infinite in epoch {trainer.current_epoch}, at or "
                f"shortly before step {trainer.global_step}; checkpoints written before are kept. "
                "Try a lower --optimizer.lr, --gradient_clip_val 1.0, or --detect_anomaly to find "
                "the operation"
            )


def better_direction(monitor: str) -> Literal["min", "max"]:
    """Losses and errors are to fall, every other metric is to rise."""
    return "min" if monitor.endswith(("loss", "error")) else "max"


def check_monitor(monitor: str, available: list[str], group: str) -> None:
    """Finds a misspelt metric before training instead of after the first epoch.

    Raises:
        ValueError: No step logs that name; the nearest one and all names are given.
    """
    if monitor in available:
        return
    near = difflib.get_close_matches(monitor, available, n=1, cutoff=0.3)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(
        f"--{group}.monitor {monitor}: nothing logs that name{hint} "
        f"(available: {', '.join(available)})"
    )
