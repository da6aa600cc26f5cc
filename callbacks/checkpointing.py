"""When checkpoints are written: between two optimizer steps, often enough, and when asked to stop.

best.ckpt is the best state by the monitored metric, last.ckpt the newest, previous.ckpt the one
before, for the case that the newest is damaged. A place is epoch:batch, both those that are done.

| event                                        | place   | what is written                        |
|----------------------------------------------|---------|----------------------------------------|
| an epoch starts                              | e:0     | best if one is due; last               |
| --checkpoint_every is over, at the next step | e:b     | last                                   |
| a validation was the best, at the next step  | e:b     | best; last                             |
| the same within a window of accumulation     | none    | best at once: its weights will be gone |
| a signal, at the next step                   | e:b     | best if due; last; the process ends    |
| a signal in a long validation                |         | nothing; the process ends              |
| no batch comes in time, on one rank          | e:b     | best if one is due; last               |
| training ends with an epoch                  | e+1:0   | best if one is due; last               |
| it ends within an epoch, a validation is due | e:b     | after it: best if it was that; last    |
| the same, none is due: one is held           | e:b     | after it: best if so; last as before   |
| it ends within a window                      | none    | best at once if it was that; last      |

Without a place a run resumes inexactly. "At the next step": when the next window begins. The
validation that only the end of training has caused is no part of a run that goes on later, but one
that is killed within it holds it again: the state before it waits in a file until it is over.
"""

import math
import re
import time
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch

from callbacks.logged_names import MonitoredName
from callbacks.module_contract import main_metric, steps_done
from callbacks.place import Place, is_validation_due, place_of
from callbacks.run_contract import Run

AUTO = "auto"
MAX_FAILURES = 3
MAX_WAIT = 8.0  # seconds that a signal waits for the end of a validation
PENDING = ".last.ckpt.pending.tmp"  # a name that a later start clears away
SAVE, STOP = 1, 128  # what the ranks agree on: nothing is 0, a signal is added to STOP


class Checkpointing(pl.Callback):
    """Keeps the best and the two newest states; deletes nothing else.

    Must come before the callbacks that change weights when training ends (averaging).

    Args:
        run: Whose checkpoints these are, and which asks before every step whether to stop.
        checkpoint_every: Optimizer steps, or a time such as 30s, 5min or 1h, between two
            checkpoints; one is also written at the start of every epoch.
        enabled: Whether to write checkpoints at all.
        monitor: Metric that decides what is best, such as val/loss; auto is the task's main one on
            the validation data. A module that does not announce its names has to have logged it
            when its first validation ends.
        mode: Whether smaller or larger is better; auto knows from the metric.

    Raises:
        ValueError: The interval is neither.
    """

    def __init__(
        self,
        run: Run,
        checkpoint_every: str = "5min",
        enabled: bool = True,
        monitor: str = "auto",
        mode: Literal["auto", "min", "max"] = "auto",
    ) -> None:
        self.monitor = monitor
        self.mode = mode
        self.folder = run.checkpoints
        self.signals = run.signals
        self.interval = parse_interval(checkpoint_every)
        self.best_path: Path | None = None  # the same on all ranks, once the fit has ended
        self.best_key: list[float] | None = None
        self.is_best_due = False
        self.is_cut = False  # the last epoch, between two steps
        self.is_pending = False  # the state before the last validation waits for its end
        self.saved_step = -1
        self.saved_time = 0.0
        self.failures = 0

    def find_best(self) -> Path | None:
        """The best checkpoint, or the last one where nothing was validated."""
        if self.folder is None:
            return None
        found = (self.folder / name for name in ("best.ckpt", "last.ckpt"))
        return next(filter(Path.is_file, found), None)

    # ---- hooks -------------------------------------------------------------------------

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if stage != "fit" or self._is_off(trainer):
            return
        usual = f"val/{main_metric(trainer, pl_module)}"
        if self.monitor == AUTO:
            self.monitor = usual
        self.monitored = MonitoredName("checkpoint", self.monitor, usual)
        direction = self.monitored.better(pl_module)
        self.mode = direction if self.mode == "auto" else self.mode
        # under torchrun only rank 0 knows the folder
        self.folder = Path(trainer.strategy.broadcast(str(self.folder)))
        if trainer.is_global_zero:  # what a killed process was writing
            for leftover in self.folder.glob(".*.ckpt.*.tmp"):
                leftover.unlink(missing_ok=True)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.saved_step, self.saved_time = steps_done(trainer), time.monotonic()
        # here, since Lightning has just set its own handlers
        if not self._is_off(trainer):
            self.signals.defer()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._between_steps(trainer, is_due=True)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx and batch_idx % trainer.accumulate_grad_batches == 0:
            self._between_steps(trainer, self._is_interval_over(trainer))

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.should_stop and self._place(trainer) and not is_validation_due(trainer):
            self._write(trainer, PENDING)
            self.is_pending = True

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any, **__: Any
    ) -> None:
        """In a validation there is nothing exact to save: a long one is given up."""
        signals = self.signals
        if not signals.received or self._is_off(trainer):
            return
        if trainer.world_size == 1 and signals.seconds_waited > MAX_WAIT and self.folder:
            signals.leave(signals.received, self.folder / "last.ckpt")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking and not self.monitor.startswith("train/"):
            self._look_for_best(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.monitor.startswith("train/") and trainer.is_last_batch:  # not of a part
            self._look_for_best(trainer)
        self.is_cut = self._place(trainer) is not None
        if self.is_cut:
            self._save(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self._is_off(trainer) and not self.is_cut:
            self._save(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # a shared file system may show other ranks the newest file later than rank 0
        found = self.find_best() if trainer.is_global_zero else None
        self.best_path = trainer.strategy.broadcast(found)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Where no batch came in time; other ranks would be waited for."""
        is_late = isinstance(exception, TimeoutError) and trainer.world_size == 1
        if is_late and (place := self._place(trainer)) and place.batch:
            self._save(trainer)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.signals.act_at_once(self.folder / "last.ckpt" if self.folder else None)

    # ---- decisions ---------------------------------------------------------------------

    def _between_steps(self, trainer: pl.Trainer, is_due: bool) -> None:
        """Saves where that is due; where a signal has come, saves and ends the process."""
        if self._is_off(trainer):
            return
        signal = self.signals.received
        wanted = STOP + signal if signal else SAVE * (is_due or self.is_best_due)
        if trainer.world_size > 1:  # the clock or a signal may have reached one rank only
            votes = torch.tensor(wanted, device=trainer.strategy.root_device)
            wanted = int(trainer.strategy.reduce(votes, reduce_op="max"))
        if wanted:
            self._save(trainer)
        if wanted > STOP:
            assert self.folder is not None
            self.signals.leave(wanted - STOP, self.folder / "last.ckpt")

    def _place(self, trainer: pl.Trainer) -> Place | None:
        """A place that a run can go on from, where this saves at all."""
        return None if self._is_off(trainer) else place_of(trainer)

    def _is_interval_over(self, trainer: pl.Trainer) -> bool:
        steps, seconds = self.interval
        if steps is not None:
            return steps_done(trainer) - self.saved_step >= steps
        return time.monotonic() - self.saved_time >= seconds

    def _look_for_best(self, trainer: pl.Trainer) -> None:
        if self._is_off(trainer):
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        without = "checkpoint: no best one, only the last"
        if not self.monitored.is_logged(trainer, self.mode, without):
            self.monitor = ""
            return
        key = self.ranking(metrics)
        if self.best_key is None or key > self.best_key:
            self.best_key, self.is_best_due = key, True
            # within an accumulation window the weights of this moment are gone by its end
            done = trainer.fit_loop.batch_idx + 1
            if done % trainer.accumulate_grad_batches and not trainer.is_last_batch:
                self.is_best_due = False
                self._write(trainer, "best.ckpt")

    def ranking(self, metrics: dict[str, float]) -> list[float]:
        """What is compared, larger is better: the metric, then the lower validation loss."""
        sign = -1.0 if self.mode == "min" else 1.0
        values = [sign * metrics.get(self.monitor, math.nan), -metrics.get("val/loss", 0.0)]
        return [value if math.isfinite(value) else -math.inf for value in values]

    # ---- writing -----------------------------------------------------------------------

    def _save(self, trainer: pl.Trainer) -> None:
        """Writes best.ckpt where that is due, and last.ckpt."""
        is_best, self.is_best_due = self.is_best_due, False
        self.saved_step, self.saved_time = steps_done(trainer), time.monotonic()
        # first: a run that goes on from a last.ckpt that knows of it would not write it again
        if is_best:
            self._write(trainer, "best.ckpt")
        if not self._put_pending_in_place(trainer):
            self._write(trainer, "last.ckpt", keep="previous.ckpt")

    def _put_pending_in_place(self, trainer: pl.Trainer) -> bool:
        """Whether there was a state before the last validation; it is last.ckpt now."""
        assert self.folder is not None
        is_pending, self.is_pending = self.is_pending, False
        pending, last = self.folder / PENDING, self.folder / "last.ckpt"
        # rank 0 knows whether it could be written
        if not is_pending or not trainer.strategy.broadcast(pending.is_file()):
            return False
        if trainer.is_global_zero:
            if last.is_file():
                last.replace(last.with_name("previous.ckpt"))
            pending.replace(last)
        return True

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


def parse_interval(text: str) -> tuple[int | None, float]:
    """ "500" -> (500, inf) steps; "30s", "5min", "1h" -> (None, seconds).

    Raises:
        ValueError: Neither, or not above zero.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h)?", text)
    value, unit = (float(found[1]), found[2]) if found else (0.0, None)
    if value > 0 and unit:
        return None, value * {"s": 1.0, "min": 60.0, "h": 3600.0}[unit]
    if value > 0 and value == int(value):
        return int(value), math.inf
    raise ValueError(
        f"--checkpoint_every must be optimizer steps (500) or a time (30s, 5min, 1h); got {text!r}"
    )
