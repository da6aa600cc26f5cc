"""Stops when the monitored metric no longer improves."""

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
        # where validations go by the clock the Trainer lacks this number; Lightning asks for it
        if getattr(trainer, "val_check_interval", None) is None:
            self._check_on_train_epoch_end = False
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            pl_module.check_monitor("early_stopping", self.monitor)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on with the patience of this run, which may be another than the checkpoint's."""
        super().load_state_dict(state_dict | {"patience": self.patience})

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self.monitor.startswith("val/") and not trainer.enable_validation:
            self.monitor = self.monitor.replace("val/", "train/", 1)
            self._check_on_train_epoch_end = True
            trainer.print(f"early stopping: no validation data, watching {self.monitor} instead")


def better_direction(monitor: str) -> Literal["min", "max"]:
    """Losses and errors are to fall, every other metric is to rise."""
    return "min" if monitor.endswith(("loss", "error")) else "max"
