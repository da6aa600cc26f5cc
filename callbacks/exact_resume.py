"""Makes a checkpoint say everything that the rest of the run depends on, and puts it back.

Lightning saves weights, optimizer, schedule and callbacks; what it leaves out, or counts in a way
that repeats or skips work in mid-epoch, is added here: the place in training (see `place`), the
random states of every rank and the rows of metrics.csv. A checkpoint taken anywhere but between two
optimizer steps (say during validation) is left as Lightning writes it.
"""

import random
from bisect import bisect_right
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Timer

from callbacks.place import begin_epoch, forget_resuming, go_on_with, place_of, write_place

KEY = "exact_resume"


class Rows(Protocol):
    """What the table of metrics can do."""

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


@runtime_checkable
class CountsSamples(Protocol):
    """A batch sampler that knows the number of samples, over all ranks, in each of its batches."""

    def samples_in(self, first_batch: int, last_batch: int) -> int: ...

    def set_epoch(self, epoch: int) -> None: ...


class ExactResume(pl.Callback):
    """Adds to checkpoints, and restores, what an exact continuation needs; always on.

    Args:
        metrics: The table of metrics, whose rows go into the checkpoint.
    """

    def __init__(self, metrics: Rows | None = None) -> None:
        self.metrics = metrics
        self.loaded: dict[str, Any] | None = None

    # ---- saving ------------------------------------------------------------------------

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        place = place_of(trainer) if trainer.state.fn == "fit" else None
        if place is None:
            return
        write_place(trainer, place, checkpoint)
        # those of a checkpoint count until they are put back, at the first batch
        states = self.loaded["random_states"] if self.loaded else random_states(trainer)
        checkpoint[KEY] = {
            "position": place.batch,
            "samples": samples_before(trainer, place.batch),
            "random_states": states,
            "metrics": None if self.metrics is None else self.metrics.state(),
        }

    # ---- restoring ---------------------------------------------------------------------

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if trainer.state.fn != "fit":
            return
        self.loaded = checkpoint.get(KEY)
        if self.loaded is None:
            trainer.print("resuming inexactly: the checkpoint was not taken between two steps")
        if self.metrics is not None:  # as it stands, where only the test is left
            table = self.metrics.state()
            if self.loaded is None:
                steps = checkpoint["global_step"]
                done = [row for row in table["rows"] if int(row["step"]) < steps]
                self.metrics.restore(table | {"rows": done})
            elif not table["rows"]:  # the checkpoint comes from another folder
                self.metrics.restore(self.loaded["metrics"] or table)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.global_rank > 0:  # weights are alike by now; dropout must not be
            torch.manual_seed(rank_seed(torch.initial_seed(), trainer.global_rank))
        if self.loaded is None:
            return
        if self.metrics is not None and self.loaded["metrics"]:
            self.metrics.restore(self.loaded["metrics"])
        if self.loaded["position"]:
            self._start_at(trainer, self.loaded["position"], self.loaded.get("samples"))
        else:
            begin_epoch(trainer)

    def _start_at(self, trainer: pl.Trainer, position: int, samples: int | None) -> None:
        """Goes on in mid-epoch; at another batch where batches are others now."""
        loader: Any = trainer.train_dataloader
        if not hasattr(getattr(loader, "batch_sampler", None), "start_at"):
            go_on_with(trainer, 0)
            trainer.print(
                "resuming inexactly: the batch_sampler of the training loader has no "
                f"start_at(batch), so that epoch {trainer.current_epoch + 1} begins again"
            )
            return
        sampler, batch, twice = loader.batch_sampler, position, 0
        if samples is not None:
            sampler.set_epoch(trainer.current_epoch)
            num_batches, window = int(trainer.num_training_batches), trainer.accumulate_grad_batches
            batch = matching_position(sampler, samples, num_batches, window)
            twice = samples - sampler.samples_in(0, batch)
        if batch != position or twice:
            go_on_with(trainer, batch)
            trainer.print(
                f"other batches than before: epoch {trainer.current_epoch + 1} goes on at batch "
                f"{batch + 1} of {num_batches}; {twice:,} samples come twice"
            )
        sampler.start_at(batch)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # as late as this: start-up (the rate finder, worker processes) may draw numbers
        if self.loaded is not None:
            restore_random_states(trainer, self.loaded["random_states"])

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any
    ) -> None:
        if self.loaded is not None:
            forget_resuming(trainer)
            self.loaded = None


class TimeLimit(Timer):
    """Lightning's --max_time, which here ends training between two optimizer steps only."""

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        done = trainer.fit_loop.batch_idx + 1
        if done % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch:
            super().on_train_batch_end(trainer, *args, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.time_remaining() is None else super().state_dict()


def samples_before(trainer: pl.Trainer, position: int) -> int | None:
    """Samples in the batches of this epoch before that one; None where the loader cannot tell."""
    sampler = getattr(trainer.train_dataloader, "batch_sampler", None)
    if not isinstance(sampler, CountsSamples):
        return None
    sampler.set_epoch(trainer.current_epoch)
    return sampler.samples_in(0, position)


def matching_position(
    sampler: CountsSamples, samples: int, num_batches: int, window: int = 1
) -> int:
    """The last batch that begins an accumulation window, with at most so many samples before it."""
    starts = range(0, num_batches, window)
    later = bisect_right(starts, samples, key=lambda n: sampler.samples_in(0, n))
    return starts[max(0, later - 1)]


def rank_seed(seed: int, rank: int) -> int:
    """A seed for each rank, far from those of other runs."""
    return int(np.random.SeedSequence((seed, rank)).generate_state(1, np.uint64)[0])


def random_states(trainer: pl.Trainer) -> list[dict[str, Any]]:
    """The state of every generator on every rank, in plain values and tensors."""
    version, words, gauss = random.getstate()
    algorithm, keys, *rest = np.random.get_state(legacy=True)
    device = trainer.strategy.root_device
    mine = {
        "python": [version, list(words), gauss],
        "numpy": [algorithm, np.asarray(keys).tolist(), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }
    if trainer.world_size == 1:
        return [mine]
    states: list[Any] = [None] * trainer.world_size
    torch.distributed.all_gather_object(states, mine)
    return states


def restore_random_states(trainer: pl.Trainer, states: list[dict[str, Any]]) -> None:
    """Sets this rank's generators; a rank that did not exist then keeps its own."""
    if trainer.global_rank >= len(states):
        return
    state = states[trainer.global_rank]
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    algorithm, keys, *rest = state["numpy"]
    np.random.set_state((algorithm, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    device = trainer.strategy.root_device
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)
