"""Two checkpoints a run: best.ckpt by the monitored metric, last.ckpt after every epoch."""

import difflib
import math
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint


class Checkpointing(Checkpoint):
    """Keeps the best and the last state; deletes nothing else.

    Args:
        enabled: Whether to write checkpoints at all.
        monitor: Metric that decides what is best.
        mode: Whether smaller or larger is better; auto knows from the name.
    """

    def __init__(
        self,
        enabled: bool = True,
        monitor: str = "val/accuracy",
        mode: Literal["auto", "min", "max"] = "auto",
    ) -> None:
        super().__init__()
        self.monitor = monitor
        falls = monitor.endswith(("loss", "error"))
        self.mode = mode if mode != "auto" else "min" if falls else "max"
        self.folder: Path | None = None
        self.best_key: list[float] | None = None

    def bind(self, folder: Path | None) -> None:
        """Says where checkpoints go (rank 0 decides; None on other ranks)."""
        self.folder = folder

    @property
    def best_path(self) -> Path | None:
        """The best checkpoint, or the last one where nothing was validated."""
        assert self.folder is not None
        for name in ("best.ckpt", "last.ckpt"):
            if (self.folder / name).is_file():
                return self.folder / name
        return None

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        if stage != "fit" or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if self.monitor not in pl_module.metric_names:
            near = difflib.get_close_matches(self.monitor, pl_module.metric_names, 1, 0.3)
            raise ValueError(
                f"--checkpoint.monitor {self.monitor}: nothing logs that name"
                f"{f'; did you mean {near[0]}?' if near else ''} "
                f"(available: {', '.join(pl_module.metric_names)})"
            )
        # under torchrun only rank 0 knows the folder
        self.folder = Path(trainer.strategy.broadcast(str(self.folder)))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._is_off(trainer) or trainer.sanity_checking or self.monitor.startswith("train/"):
            return
        self._save_if_best(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._is_off(trainer):
            return
        if self.monitor.startswith("train/"):
            self._save_if_best(trainer)
        self._save(trainer, "last.ckpt")

    def _save_if_best(self, trainer: pl.Trainer) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        key = self.ranking(metrics)
        if self.best_key is None or key > self.best_key:
            self.best_key = key
            self._save(trainer, "best.ckpt")

    def ranking(self, metrics: dict[str, float]) -> list[float]:
        """What is compared, larger is better: the metric, then the lower validation loss."""
        sign = -1.0 if self.mode == "min" else 1.0
        values = [sign * metrics[self.monitor], -metrics.get("val/loss", 0.0)]
        return [value if math.isfinite(value) else -math.inf for value in values]

    def _save(self, trainer: pl.Trainer, name: str) -> None:
        assert self.folder is not None
        trainer.save_checkpoint(self.folder / name)

    def _is_off(self, trainer: pl.Trainer) -> bool:
        return bool(trainer.fast_dev_run) or trainer.state.fn != "fit"  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        return {"best_key": self.best_key}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_key = state_dict["best_key"]
