"""Where training stands between two optimizer steps, and Lightning's counters that mean the same.

The one file that knows Lightning's loops from within: what they count, and when they read it again.
They are private, so that the version is pinned; tests/callbacks/test_saved_places.py holds every
counter. For another version, read anew
https://github.com/Lightning-AI/pytorch-lightning/tree/2.6.6/src/lightning/pytorch/loops
(progress.py, fit_loop.py, training_epoch_loop.py; `update_restart_stage` and `reset` in both).
"""

from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl

LIGHTNING = "2.6.6"
EPOCHS = "epoch_progress"
BATCHES = "epoch_loop.batch_progress"
LOGGED = "epoch_loop.state_dict"


@dataclass(frozen=True)
class Place:
    """Between two optimizer steps; a validation that is due after `batch` has been held.

    Args:
        epoch: Epochs done.
        batch: Batches of the next one done.
        steps: Optimizer steps done, in Lightning's count: two optimizers make two a batch.
    """

    epoch: int
    batch: int
    steps: int


def place_of(trainer: pl.Trainer) -> Place | None:
    """Where training stands; None within a step, a window of accumulation, a validation that is due
    anyway, or the end of an epoch."""
    epochs: Any = trainer.fit_loop.epoch_progress.current
    batches = trainer.fit_loop.epoch_loop.batch_progress
    batch: Any = batches.current
    done = batch.completed
    place = Place(epochs.completed, done, trainer.global_step)
    is_epoch_done = batches.is_last_batch and batch.ready == done
    if epochs.started == epochs.completed:  # between two epochs, or where one was left in a step
        return Place(place.epoch, 0, place.steps) if is_epoch_done or not done else None
    is_within_step = batch.started > done or done % trainer.accumulate_grad_batches
    # one that is held because training ends belongs to no longer run
    is_validating = trainer.validating and not trainer.should_stop
    return None if is_epoch_done or is_within_step or is_validating else place


def loop_state(place: Place, earlier_batches: int, is_manual: bool) -> dict[str, Any]:
    """The part of `checkpoint["loops"]["fit_loop"]` that is not right while a batch or an epoch has
    been announced but not begun; what else is counted there (optimizers, schedules) is.

    An epoch that has begun is written as Lightning itself does at the end of a batch: when it
    resumes, it counts that batch as completed, and its step as logged.

    Args:
        place: Where training stands.
        earlier_batches: Of all epochs before; with other batch sizes they had other numbers.
        is_manual: Whether the module calls its optimizers itself. Lightning logs at a number that
            counts steps, but batches then, whatever the number of optimizers.
    """
    epoch = place.epoch
    if place.batch == 0:
        return {EPOCHS: {"total": counts(epoch, epoch), "current": counts(epoch, epoch)}}
    logged = earlier_batches + place.batch if is_manual else place.steps
    return {
        EPOCHS: {"total": counts(epoch + 1, epoch), "current": counts(epoch + 1, epoch)},
        BATCHES: batches_done(place.batch, earlier_batches),
        LOGGED: {"_batches_that_stepped": logged - 1},
    }


def batches_done(batch: int, earlier_batches: int) -> dict[str, Any]:
    """Counters at the end of the batch before that one."""
    total, current = (counts(n, n) | {"completed": n - 1} for n in (earlier_batches + batch, batch))
    return {"total": total, "current": current, "is_last_batch": False}


def counts(started: int, done: int) -> dict[str, int]:
    """One counter of Lightning's."""
    return {"ready": started, "started": started, "processed": done, "completed": done}


def write_place(trainer: pl.Trainer, place: Place, checkpoint: dict[str, Any]) -> None:
    """Makes a checkpoint's counters say that place."""
    is_manual = not trainer.lightning_module.automatic_optimization
    state = loop_state(place, earlier_batches(trainer), is_manual)
    checkpoint["loops"]["fit_loop"].update(state)


def earlier_batches(trainer: pl.Trainer) -> int:
    """Batches of all epochs before this one."""
    progress = trainer.fit_loop.epoch_loop.batch_progress
    return progress.total.ready - progress.current.ready


def is_validation_due(trainer: pl.Trainer) -> bool:
    """Whether a validation follows the batch just done, also where training goes on."""
    loop, every_n_epochs = trainer.fit_loop, trainer.check_val_every_n_epoch
    if every_n_epochs is not None and (trainer.current_epoch + 1) % every_n_epochs:
        return False
    last = loop.total_batch_idx if every_n_epochs is None else loop.batch_idx
    every = trainer.val_check_batch  # None where validations go by the clock
    return every is not None and (last + 1) % every == 0


# ---- a run that goes on -------------------------------------------------------------------


def go_on_with(trainer: pl.Trainer, batch: int) -> None:
    """Another batch of the epoch than the loaded counters say; before the epoch goes on."""
    progress = trainer.fit_loop.epoch_loop.batch_progress
    progress.load_state_dict(batches_done(batch, earlier_batches(trainer)))


def begin_epoch(trainer: pl.Trainer) -> None:
    """An epoch that has not begun, which Lightning would take for one that is finished."""
    trainer.fit_loop.epoch_loop.restarting = False


def forget_resuming(trainer: pl.Trainer) -> None:
    """After the first batch; else Lightning skips torch's plateau schedule in this epoch."""
    # not by its property, which where steps are counted would set it, also on other loops
    trainer.fit_loop._restarting = False
