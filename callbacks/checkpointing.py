"""When checkpoints are written: between two optimizer steps, often enough, and when asked to stop.

best.ckpt is the best state by the monitored metric, last.ckpt the newest, previous.ckpt the one
before, for the case that the newest is damaged.
"""

import math
import time
from pathlib import Path
from typing import Any, Literal, Protocol

import pytorch_lightning as pl
import torch

AUTO = "auto"
MAX_FAILURES = 3
MAX_WAIT = 8.0  # seconds that a signal waits for the end of a validation
PENDING = ".last.ckpt.pending.tmp"  # a name that a later start clears away
SAVE, STOP = 1, 128  # what the ranks agree on: nothing is 0, a signal is added to STOP


class Signals(Protocol):
    """Who asks this process to stop, and how it then ends."""

    received: int
    seconds_waited: float

    def defer(self) -> None: ...

    def act_at_once(self, checkpoint: Path | None) -> None: ...

    def leave(self, number: int, checkpoint: Path | None) -> None: ...


class Checkpointing(pl.Callback):
    """Keeps the best and the two newest states; deletes nothing else.

    Must come before the callbacks that change weights when training ends (averaging).

    Args:
        enabled: Whether to write checkpoints at all.
        monitor: Metric that decides what is best, such as val/loss; auto is the task's main one on
            the validation data.
        mode: Whether smaller or larger is better; auto knows from the metric.
    """

    def __init__(
        self,
        enabled: bool = True,
        monitor: str = "auto",
        mode: Literal["auto", "min", "max"] = "auto",
    ) -> None:
        self.monitor = monitor
        self.mode = mode
        self.folder: Path | None = None
        self.signals: Signals | None = None
        self.interval = parse_interval("5min")
        self.best_path: Path | None = None  # the same on all ranks, once the fit has ended
        self.best_key: list[float] | None = None
        self.is_best_due = False
        self.saved_step = -1
        self.saved_time = 0.0
        self.failures = 0

    def bind(
        self, folder: Path | None, signals: Signals | None = None, interval: str = "5min"
    ) -> None:
        """Hands in what flags of this group do not say.

        Args:
            folder: Where checkpoints go (rank 0 decides; None on other ranks).
            signals: Asked before every step whether to stop.
            interval: Optimizer steps, or a time such as 30s, 5min or 1h, between two checkpoints;
                one is also written at the start of every epoch.

        Raises:
            ValueError: The interval is neither.
        """
        self.folder = folder
        self.signals = signals
        self.interval = parse_interval(interval)

    def find_best(self) -> Path | None:
        """The best checkpoint, or the last one where nothing was validated."""
        if self.folder is None:
            return None
        for name in ("best.ckpt", "last.ckpt"):
            if (self.folder / name).is_file():
                return self.folder / name
        return None

    # ---- hooks -------------------------------------------------------------------------

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        if stage != "fit" or self._is_off(trainer):
            return
        if self.monitor == AUTO:
            self.monitor = f"val/{pl_module.task.main_metric}"
        direction = pl_module.check_monitor("checkpoint", self.monitor)
        self.mode = direction if self.mode == "auto" else self.mode
        # under torchrun only rank 0 knows the folder
        self.folder = Path(trainer.strategy.broadcast(str(self.folder)))
        if trainer.is_global_zero:  # what a killed process was writing
            for leftover in self.folder.glob(".*.ckpt.*.tmp"):
                leftover.unlink(missing_ok=True)

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.saved_step, self.saved_time = trainer.global_step, time.monotonic()
        # here, since Lightning has just set its own handlers
        if self.signals is not None and not self._is_off(trainer):
            self.signals.defer()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._between_steps(trainer, is_due=True)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx and batch_idx % trainer.accumulate_grad_batches == 0:
            self._between_steps(trainer, self._is_interval_over(trainer))

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        # one that is held only because training ends is not part of the run that goes on later;
        # this becomes last.ckpt after it, so that a run killed within it holds it again
        if trainer.should_stop and self._is_cut(trainer) and not is_validation_due(trainer):
            self._write(trainer, PENDING)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int, loader: int = 0
    ) -> None:
        """In a validation there is nothing exact to save: a long one is given up."""
        signals = self.signals
        if signals is None or not signals.received or self._is_off(trainer):
            return
        if trainer.world_size == 1 and signals.seconds_waited > MAX_WAIT and self.folder:
            signals.leave(signals.received, self.folder / "last.ckpt")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not trainer.sanity_checking and not self.monitor.startswith("train/"):
            self._look_for_best(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self.monitor.startswith("train/") and trainer.is_last_batch:  # not of a part
            self._look_for_best(trainer)
        if not self._is_cut(trainer):
            return
        if self._is_pending(trainer):
            if self.is_best_due:
                self._write(trainer, "best.ckpt")
            self._finish_pending(trainer)
        elif self.saved_step < trainer.global_step:
            self._save(trainer)
        elif self.is_best_due:
            self._write(trainer, "best.ckpt")

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not self._is_off(trainer) and not self._is_cut(trainer):
            self._save(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        # a shared file system may show other ranks the newest file later than rank 0
        found = self.find_best() if trainer.is_global_zero else None
        self.best_path = trainer.strategy.broadcast(found)

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        """Where no batch came in time, the state is one between two steps; one rank alone saves."""
        if not isinstance(exception, TimeoutError) or trainer.world_size > 1:
            return
        progress = trainer.fit_loop.epoch_loop.batch_progress
        done = progress.current.completed
        is_between = trainer.training and progress.current.ready == done > 0
        window_is_closed = done % trainer.accumulate_grad_batches == 0
        if is_between and window_is_closed and not self._is_off(trainer):
            progress.increment_ready()  # the batch that was waited for
            self._save(trainer)

    def on_test_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self.signals is not None:
            self.signals.act_at_once(self.folder / "last.ckpt" if self.folder else None)

    # ---- decisions ---------------------------------------------------------------------

    def _between_steps(self, trainer: pl.Trainer, is_due: bool) -> None:
        """Saves where that is due; where a signal has come, saves and ends the process."""
        if self._is_off(trainer):
            return
        signal = self.signals.received if self.signals is not None else 0
        wanted = STOP + signal if signal else SAVE * (is_due or self.is_best_due)
        if trainer.world_size > 1:  # the clock or a signal may have reached one rank only
            votes = torch.tensor(wanted, device=trainer.strategy.root_device)
            wanted = int(trainer.strategy.reduce(votes, reduce_op="max"))
        if wanted:
            self._save(trainer)
        if wanted > STOP and self.signals is not None:
            assert self.folder is not None
            self.signals.leave(wanted - STOP, self.folder / "last.ckpt")

    def _is_cut(self, trainer: pl.Trainer) -> bool:
        """Whether training that ends now leaves an epoch that can be gone on with."""
        window_is_closed = (trainer.fit_loop.batch_idx + 1) % trainer.accumulate_grad_batches == 0
        return window_is_closed and not trainer.is_last_batch and not self._is_off(trainer)

    def _is_interval_over(self, trainer: pl.Trainer) -> bool:
        steps, seconds = self.interval
        if steps is not None:
            return trainer.global_step - self.saved_step >= steps
        return time.monotonic() - self.saved_time >= seconds

    def _look_for_best(self, trainer: pl.Trainer) -> None:
        if self._is_off(trainer):
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        key = self.ranking(metrics)
        if self.best_key is None or key > self.best_key:
            self.best_key = key
            self.is_best_due = True
            # within an accumulation window the weights of this moment are gone by its end
            done = trainer.fit_loop.batch_idx + 1
            if done % trainer.accumulate_grad_batches and not trainer.is_last_batch:
                self._write(trainer, "best.ckpt")
                self.is_best_due = False

    def ranking(self, metrics: dict[str, float]) -> list[float]:
        """What is compared, larger is better: the metric, then the lower validation loss."""
        sign = -1.0 if self.mode == "min" else 1.0
        values = [sign * metrics[self.monitor], -metrics.get("val/loss", 0.0)]
        return [value if math.isfinite(value) else -math.inf for value in values]

    # ---- writing -----------------------------------------------------------------------

    def _save(self, trainer: pl.Trainer) -> None:
        """Writes last.ckpt, and best.ckpt where that is due.

        Raises:
            OSError: Writing failed too often in a row.
        """
        is_best, self.is_best_due = self.is_best_due, False
        self.saved_step, self.saved_time = trainer.global_step, time.monotonic()
        self._write(trainer, "last.ckpt", keep="previous.ckpt")
        if is_best:
            self._write(trainer, "best.ckpt")

    def _is_pending(self, trainer: pl.Trainer) -> bool:
        """Whether the state before the last validation waits for its end; rank 0 knows."""
        assert self.folder is not None
        return bool(trainer.strategy.broadcast((self.folder / PENDING).is_file()))

    def _finish_pending(self, trainer: pl.Trainer) -> None:
        assert self.folder is not None
        self.is_best_due, self.saved_step = False, trainer.global_step
        if trainer.is_global_zero:
            last = self.folder / "last.ckpt"
            if last.is_file():
                last.replace(self.folder / "previous.ckpt")
            (self.folder / PENDING).replace(last)

    def _write(self, trainer: pl.Trainer, name: str, keep: str | None = None) -> None:
        """One file; a failure costs only this file until there have been too many."""
        assert self.folder is not None
        errors: list[OSError | ValueError] = []
        options = {"errors": errors, "keep": self.folder / keep if keep else None}
        trainer.save_checkpoint(self.folder / name, storage_options=options)
        if not errors:
            self.failures = 0
            return
        if isinstance(errors[0], ValueError):  # it would be no other the next time
            raise errors[0]
        self.failures += 1
        text = f"{errors[0]}; the checkpoints written before are kept"
        if self.failures >= MAX_FAILURES:
            raise OSError(f"{text}; {self.failures} failures in a row: training stops")
        trainer.lightning_module.print(f"warning: {text}; training goes on")

    def _is_off(self, trainer: pl.Trainer) -> bool:
        return bool(trainer.fast_dev_run) or trainer.state.fn != "fit"  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        return {"best_key": self.best_key, "is_best_due": self.is_best_due}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_key = state_dict["best_key"]
        self.is_best_due = state_dict["is_best_due"]


def is_validation_due(trainer: pl.Trainer) -> bool:
    """Whether a validation follows the batch just done, also where training goes on."""
    loop, every_n_epochs = trainer.fit_loop, trainer.check_val_every_n_epoch
    if every_n_epochs is not None and (trainer.current_epoch + 1) % every_n_epochs:
        return False
    last = loop.total_batch_idx if every_n_epochs is None else loop.batch_idx
    every = trainer.val_check_batch  # None where validations go by the clock
    return every is not None and (last + 1) % every == 0


def parse_interval(text: str) -> tuple[int | None, float]:
    """ "500" -> (500, inf) steps; "30s", "5min", "1h" -> (None, seconds).

    Raises:
        ValueError: Neither, or not above zero.
    """
    units = {"s": 1.0, "min": 60.0, "h": 3600.0}
    number = text.rstrip("hmins")
    unit = text[len(number) :]
    try:
        value = float(number)
        if value > 0 and unit in units:
            return None, value * units[unit]
        if value > 0 and not unit and value == int(value):
            return int(value), math.inf
    except ValueError:
        pass
    raise ValueError(
        f"--checkpoint_every must be optimizer steps (500) or a time (30s, 5min, 1h); got {text!r}"
    )
