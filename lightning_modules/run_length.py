"""How many optimizer steps a run still has, by its limits of epochs and of steps; and one's size.

What is left against the whole is the share of the run that is done, which schedules go by: it stays
the same when a run goes on with batches of another size, since epochs count and not their steps.
"""

import math
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl


def remaining_steps(
    limits: tuple[int | None, int],
    steps_per_epoch: int | float,
    epochs_done: int = 0,
    steps_of_epoch: int = 0,
    steps_done: int = 0,
) -> int | float:
    """Optimizer steps to the first of the limits; infinite where there is none.

    Args:
        limits: Epochs and steps at most; None or -1 is no limit.
        steps_per_epoch: As it is from here on.
        epochs_done: Whole epochs so far.
        steps_of_epoch: Steps of the current epoch so far.
        steps_done: Steps so far, whatever batches they had.
    """
    max_epochs, max_steps = limits
    left: float = math.inf if max_steps == -1 else max_steps - steps_done
    if max_epochs is not None and max_epochs != -1 and math.isfinite(steps_per_epoch):
        whole_epochs = (max_epochs - epochs_done) * steps_per_epoch
        left = min(left, whole_epochs - steps_of_epoch)
    return max(0, int(left)) if math.isfinite(left) else left


def steps_left(trainer: pl.Trainer) -> int:
    """Those of a run that starts or goes on."""
    loop, window = trainer.fit_loop, trainer.accumulate_grad_batches
    is_within_epoch = loop.epoch_progress.current.ready > trainer.current_epoch
    left = remaining_steps(
        (trainer.max_epochs, trainer.max_steps),
        math.ceil(trainer.num_training_batches / window),
        trainer.current_epoch,
        math.ceil((loop.batch_idx + 1) / window) if is_within_epoch else 0,
        trainer.global_step,
    )
    return int(left)


def loss_scale(trainer: pl.Trainer, batch_idx: int, num_samples: int) -> float:
    """What to multiply a sum of losses with, so that an optimizer step sees their mean.

    Lightning divides by the accumulation count and DDP by the number of ranks, whatever the true
    size of a batch or of an epoch's last window is; this undoes both and divides by the true number
    of samples in the window.
    """
    window = trainer.accumulate_grad_batches
    loader: Any = trainer.train_dataloader
    samples_in: Callable[[int, int], int] | None = getattr(loader.batch_sampler, "samples_in", None)
    if samples_in is None:  # a loader from elsewhere: the plain mean of this batch
        return 1 / num_samples
    first = batch_idx // window * window
    last = min(first + window, int(trainer.num_training_batches))
    return trainer.world_size * window / samples_in(first, last)
