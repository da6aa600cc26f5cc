"""Which samples form which batch, in which step and on which rank.

Order is a function of (seed, epoch) alone. Sizes are global: each rank takes its share of every
global batch, so 1 and R ranks see the same samples in the same steps.

M samples of a split, B global batches of an epoch, N samples of one batch on one rank.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from torch.utils.data import Sampler

WINDOW_SHARE = 0.01


class EpochIndices(NamedTuple):
    """What a loader hands to a dataset's `__getitems__`."""

    epoch: int
    indices: np.ndarray  # int64 [N]
    occurrences: np.ndarray | int = 0  # int64 [N], how often each came before in this epoch


class BatchOrder(Sampler[EpochIndices]):
    """Batches of one rank; here all samples in turn, each once over all ranks.

    Args:
        num_samples: Samples in the split.
        sizes: int64 [B], of the global batches in the order of the samples.
        batch_size: Global batch size.
        seed: Together with the epoch it determines the order.
    """

    def __init__(
        self,
        num_samples: int,
        sizes: np.ndarray,
        batch_size: int,
        seed: int = 0,
        world_size: int = 1,
        rank: int = 0,
    ) -> None:
        self.num_samples = num_samples
        self.sizes = sizes
        self.ends = np.cumsum(sizes)
        self.num_batches = int((sizes > rank).sum())  # the last of an evaluation may lack a rank
        self.rank_size = per_rank_batch_size(batch_size, world_size)
        self.seed = seed
        self.world_size = world_size
        self.rank = rank
        self.epoch = 0
        self.first_batch = 0
        self.repeats_first_epoch = False  # for overfitting: also with the same augmentation
        self._counted: tuple[int, np.ndarray] = -1, sizes

    @property
    def sampler(self) -> "BatchOrder":
        """Itself: Lightning calls `set_epoch` only on a batch sampler's `sampler`."""
        return self

    @property
    def num_used(self) -> int:
        """Samples of an epoch over all ranks."""
        return int(self.sizes.sum())

    @property
    def num_dropped(self) -> int:
        """Samples left out of each epoch."""
        return self.num_samples - self.num_used

    def set_epoch(self, epoch: int) -> None:
        self.epoch = 0 if self.repeats_first_epoch else epoch

    def start_at(self, batch: int) -> None:
        """The next iteration leaves out the batches before this one; those after it are whole."""
        self.first_batch = batch

    def samples_in(self, first_batch: int, last_batch: int) -> int:
        """Samples over all ranks in batches first..last-1 of this epoch."""
        if self._counted[0] != self.epoch:  # once an epoch, since every step of training asks
            sizes = self.sizes[self._batch_order(self._generator())]
            self._counted = self.epoch, np.cumsum(np.append(0, sizes))
        before, count = self._counted[1], len(self.sizes)
        return int(before[min(last_batch, count)] - before[min(first_batch, count)])

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[EpochIndices]:
        epoch, first, self.first_batch = self.epoch, self.first_batch, 0
        generator = self._generator()
        batches = self._batch_order(generator)
        order = self._sample_order(generator)
        occurrences = self._occurrences(order)
        for batch in batches[first:]:
            places = self._share(int(self.ends[batch] - self.sizes[batch]), int(self.ends[batch]))
            if len(places):
                repeats = 0 if occurrences is None else occurrences[places]
                yield EpochIndices(epoch, order[places], repeats)

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.epoch))

    def _batch_order(self, generator: np.random.Generator) -> np.ndarray:
        return np.arange(len(self.sizes))

    def _sample_order(self, generator: np.random.Generator) -> np.ndarray:
        """int64 [M], out of which the batches are cut."""
        return np.arange(self.num_samples)

    def _occurrences(self, order: np.ndarray) -> np.ndarray | None:
        """int64 [M], of each place; None where nothing is repeated."""
        return None

    def _share(self, start: int, stop: int) -> np.ndarray:
        """This rank's places in the order, of a batch that goes from start to stop."""
        return np.arange(start + self.rank, stop, self.world_size)


class EvaluationBatchSampler(BatchOrder):
    """Every sample exactly once over all ranks: nothing padded, nothing dropped."""

    def __init__(
        self, num_samples: int, batch_size: int, world_size: int = 1, rank: int = 0
    ) -> None:
        sizes = cut_evenly(num_samples, batch_size)
        super().__init__(num_samples, sizes, batch_size, 0, world_size, rank)


class EpochBatchSampler(BatchOrder):
    """Shuffled training batches, equally many of equal size on all ranks: see `equal_shares`.

    Args:
        strata: int64 [num_samples]; given, samples are drawn so that all strata come equally
            often: rare ones repeatedly, frequent ones in part.
        with_neighbour: Whether the sample before a rank's share in the global batch (before its
            first, the last) comes along in front of the share.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        seed: int,
        world_size: int = 1,
        rank: int = 0,
        strata: np.ndarray | None = None,
        with_neighbour: bool = False,
    ) -> None:
        sizes = equal_shares(cut_evenly(num_samples, batch_size), world_size)
        super().__init__(num_samples, sizes, batch_size, seed, world_size, rank)
        self.strata = strata
        self.with_neighbour = with_neighbour

    def _sample_order(self, generator: np.random.Generator) -> np.ndarray:
        order = generator.permutation(self.num_samples)
        if self.strata is None:
            return order
        return generator.permutation(balanced(order, self.strata[order], generator.random()))

    def _occurrences(self, order: np.ndarray) -> np.ndarray | None:
        return None if self.strata is None else occurrences_in(order)

    def _share(self, start: int, stop: int) -> np.ndarray:
        share = (stop - start) // self.world_size
        places = np.arange(self.rank * share - self.with_neighbour, (self.rank + 1) * share)
        return start + places % (stop - start)


class BucketBatchSampler(BatchOrder):
    """Batches of texts of similar length, so that little is padding.

    Texts are sorted by length with a local shuffle: each moves by at most `WINDOW_SHARE` of all
    places, by chance. The borders between batches lie at the same places in every epoch, so that
    their number, which learning-rate schedules count on, never changes; what fills them does.

    Args:
        lengths: int32 [M], tokens of each text.
        batch_tokens: Largest N x L of a global batch, padding included, which then decides the
            number of texts instead of `batch_size`; None is off.
        training: Shuffled and equal on all ranks, or sorted and complete.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        seed: int,
        world_size: int = 1,
        rank: int = 0,
        batch_tokens: int | None = None,
        training: bool = True,
    ) -> None:
        self.lengths = lengths
        self.training = training
        self.window = max(1, int(WINDOW_SHARE * len(lengths))) if training else 1
        sizes = cut_evenly(len(lengths), batch_size)
        if batch_tokens is not None:
            sizes = cut_by_tokens(lengths, batch_tokens, world_size, self.window)
        if training:
            sizes = equal_shares(sizes, world_size)
        super().__init__(len(lengths), sizes, batch_size, seed, world_size, rank)

    def _batch_order(self, generator: np.random.Generator) -> np.ndarray:
        batches = super()._batch_order(generator)
        return generator.permutation(batches) if self.training else batches

    def _sample_order(self, generator: np.random.Generator) -> np.ndarray:
        """Longest first; texts of one length in random order; then the local shuffle."""
        if not self.training:
            return np.argsort(-self.lengths, kind="stable")
        shuffled = generator.permutation(self.num_samples)
        order = shuffled[np.argsort(-self.lengths[shuffled], kind="stable")]
        place = generator.uniform(0, self.window, len(order))
        place += np.arange(len(order))
        return order[np.argsort(place, kind="stable")]


def per_rank_batch_size(batch_size: int, world_size: int) -> int:
    """Samples of one global batch on each rank.

    Raises:
        ValueError: The global batch cannot be shared equally.
    """
    if batch_size < 1 or batch_size % world_size:
        below = batch_size // world_size * world_size
        fitting = f"{below} or {below + world_size}" if below else f"{world_size}"
        raise ValueError(
            f"--data.batch_size {batch_size} is shared by {world_size} processes and must be a "
            f"multiple of {world_size}; the nearest that fit: {fitting}"
        )
    return batch_size // world_size


def cut_evenly(num_samples: int, batch_size: int) -> np.ndarray:
    """Sizes of batches, of which only the last may be smaller; int64 [B]."""
    return np.diff(np.append(np.arange(0, num_samples, batch_size), num_samples))


def cut_by_tokens(lengths: np.ndarray, most: int, world_size: int, window: int) -> np.ndarray:
    """Sizes of batches, longest texts first, of which none holds more than `most` tokens, padding
    included; int64 [B]. A budget below the longest text on every rank is a ValueError.
    """
    longest_first = np.sort(lengths)[::-1]
    longest = int(longest_first[0])
    if longest * world_size > most:
        raise ValueError(
            f"--data.batch_tokens {most} is below the longest text ({longest} tokens) "
            f"times the number of processes ({world_size}); raise it, or lower --data.max_length"
        )
    borders = [0]
    while borders[-1] < len(lengths):
        start = borders[-1]
        # the local shuffle brings a text at most `window` places forward
        size = most // max(int(longest_first[max(0, start - window)]), 1)
        borders.append(min(start + size // world_size * world_size, len(lengths)))
    return np.diff(borders)


def equal_shares(sizes: np.ndarray, world_size: int) -> np.ndarray:
    """Cuts batch sizes to multiples of the ranks, and a last single sample a rank, since BatchNorm
    needs two: those few are left out of an epoch, others of the next.

    Raises:
        ValueError: Nothing is left.
    """
    shared = sizes // world_size * world_size
    if len(shared) > 1 and shared[-1] == world_size and sizes[-2] > world_size:
        shared[-1] = 0
    if not shared.sum():
        raise ValueError(f"{sizes.sum()} training samples are too few for {world_size} processes")
    return shared[shared > 0]


def balanced(order: np.ndarray, strata: np.ndarray, offset: float) -> np.ndarray:
    """As many samples as given, int64 [M] in random order; every stratum equally often, each sample
    of one as well.

    Systematic resampling: equally spaced points, beginning at an offset in [0, 1), over the
    samples' weights, so that counts differ from their expectation by less than one.
    """
    by_stratum = np.argsort(strata, kind="stable")
    _, inverse, counts = np.unique(strata[by_stratum], return_inverse=True, return_counts=True)
    edges = np.cumsum(1.0 / (len(counts) * counts[inverse]))  # [M], ends at 1
    points = (offset + np.arange(len(order))) / len(order)
    found = np.searchsorted(edges, points, side="right").clip(max=len(order) - 1)
    return order[by_stratum[found]]


def occurrences_in(order: np.ndarray) -> np.ndarray:
    """How often the sample of each place stands before it; int64 [M]."""
    by_sample = np.argsort(order, kind="stable")
    is_first = np.diff(order[by_sample], prepend=-1) > 0
    places = np.arange(len(order))
    occurrences = np.empty_like(order)
    occurrences[by_sample] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return occurrences
