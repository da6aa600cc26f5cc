"""Stops when the monitored metric no longer improves."""

import difflib
from typing import Any, Literal

import pytorch_lightning as pl
from pytorch_lightning import callbacks as pl_callbacks


class EarlyStopping(pl_callbacks.EarlyStopping):
    """Lightning's early stopping, with the monitored name checked before training.

    Args:
        enabled: Whether to stop early at all.
        monitor: Metric to watch, such as val/loss.
        mode: Whether smaller or larger is better; auto knows from the name.
        patience: Validations without improvement before training ends.
        min_delta: Smallest change that counts as an improvement.
        stopping_threshold: Stop as soon as the metric is better than this.
    """

    def __init__(
        self,
        enabled: bool = True,
        monitor: str = "val/loss",
        mode: Literal["auto", "min", "max"] = "auto",
        patience: int = 5,
        min_delta: float = 0.0,
        stopping_threshold: float | None = None,
    ) -> None:
        if patience < 1 or min_delta < 0:
            raise ValueError(
                "--early_stopping.patience must be at least 1 and min_delta at least 0; "
                f"got {patience} and {min_delta}"
            )
        super().__init__(
            monitor=monitor,
            mode=better_direction(monitor) if mode == "auto" else mode,
            patience=patience,
            min_delta=min_delta,
            stopping_threshold=stopping_threshold,
            strict=False,  # the name is checked in setup; an epoch cut short may lack a value
            check_finite=False,  # that is an error, not a reason to stop quietly
        )

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            check_monitor(self.monitor, pl_module.metric_names, "early_stopping")

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self.monitor.startswith("val/") and not trainer.enable_validation:
            self.monitor = self.monitor.replace("val/", "train/", 1)
            self._check_on_train_epoch_end = True
            trainer.print(f"early stopping: no validation data, watching {self.monitor} instead")


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
