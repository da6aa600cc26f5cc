"""Progress on the screen: a bar on a terminal, one line an epoch everywhere.

The bar redraws at most five times a second and reads the loss only when it draws, so that it
never makes the device wait.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from torch import Tensor

from callbacks.module_contract import NamesMetrics, loss_in, main_metric

REDRAW_SECONDS = 0.2
MAX_OTHERS = 8  # of a module that does not say which of its figures decide something


class EpochProgress(ProgressBar):
    """Prints epochs as lines, with a bar below them where a person is watching."""

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(file=sys.stdout, soft_wrap=True, highlight=False)
        self.bar: Progress | None = None
        self.is_enabled = True
        self.last_draw = 0.0
        self.epoch_started = 0.0
        self.is_validated = False  # in this epoch

    def disable(self) -> None:
        """Lightning calls this on every rank but the first."""
        self.is_enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Prints a line above the bar."""
        if self.is_enabled:
            self.console.print(*args, markup=False)

    # ---- training ----------------------------------------------------------------------

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start(trainer.num_training_batches)
        self.epoch_started = time.perf_counter()  # of the rest of an epoch that goes on

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.epoch_started, self.is_validated = time.perf_counter(), False

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        text = f"epoch {trainer.current_epoch + 1}"
        self._draw(text, batch_idx + 1, trainer.num_training_batches, loss_in(outputs))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        seconds = time.perf_counter() - self.epoch_started
        values = trainer.callback_metrics.items()  # those of the last validation stay in it
        stale = () if self.is_validated else ("val/",)
        metrics = {name: float(value) for name, value in values if not name.startswith(stale)}
        shown, monitored = ["loss"], sorted(metrics)[:MAX_OTHERS]
        if isinstance(pl_module, NamesMetrics):
            shown, monitored = ["loss", main_metric(trainer, pl_module)], pl_module.monitored
        names = [f"{split}/{name}" for split in ("train", "val") for name in shown]
        names += [*monitored, "lr"]
        self.print(
            epoch_line(trainer.current_epoch + 1, trainer.max_epochs, metrics, seconds, names)
        )

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    # ---- evaluation --------------------------------------------------------------------

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        index: int,
        *_: Any,
    ) -> None:
        self._draw("validating", index + 1, trainer.num_val_batches[0])

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.is_validated = True

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start(trainer.num_test_batches[0])

    def on_test_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        index: int,
        *_: Any,
    ) -> None:
        self._draw("testing", index + 1, trainer.num_test_batches[0])

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        self._stop()

    # ---- drawing -----------------------------------------------------------------------

    def _start(self, total: float) -> None:
        self._stop()
        if not (self.is_enabled and self.console.is_terminal):
            return
        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=self.console, transient=True, auto_refresh=False)
        self.bar.start()
        self.bar.add_task("", total=total)

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _draw(self, text: str, completed: int, total: float, loss: Tensor | None = None) -> None:
        if self.bar is None or time.perf_counter() - self.last_draw <= REDRAW_SECONDS:
            return
        if loss is not None:
            text += f"  loss {float(loss):.4f}"  # read only now, since the device has to wait
        self.last_draw = time.perf_counter()
        task = self.bar.task_ids[0]
        self.bar.update(task, description=text, completed=completed, total=total, refresh=True)


def epoch_line(
    epoch: int,
    max_epochs: int | None,
    metrics: dict[str, float],
    seconds: float,
    names: Sequence[str],
) -> str:
    """`epoch 3/15  train/loss 0.0812 … 2.1 s`, of those names that were logged."""
    total = f"/{max_epochs}" if max_epochs and max_epochs > 0 else ""
    parts = [f"epoch {epoch}{total}"]
    for name in dict.fromkeys(names):
        if name in metrics:
            value = metrics[name]
            parts.append(f"{name} {value:.2e}" if name == "lr" else f"{name} {value:.4f}")
    return "  ".join([*parts, f"{seconds:.1f} s"])
