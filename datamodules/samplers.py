"""Which samples form which batch, on which rank. Order is a function of (seed, epoch) alone.

The batch size is global: rank r of R takes its share of every global batch, so 1 and R ranks see
the same samples in the same steps.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from torch.utils.data import Sampler


class EpochIndices(NamedTuple):
    """What a loader hands to a dataset's `__getitems__`."""

    epoch: int
    indices: np.ndarray  # int64 [N]


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


class EpochBatchSampler(Sampler[EpochIndices]):
    """Shuffled training batches of one rank.

    All ranks get batches of equal size and number: of the last, smaller global batch the few
    samples that cannot be shared equally, or would leave a rank with a single one (BatchNorm
    needs two), are left out of that epoch; another order leaves out others.

    Args:
        num_samples: Samples in the training split.
        batch_size: Global batch size.
        seed: Together with the epoch it determines the order.
        world_size: Number of ranks.
        rank: This rank.
        strata: int64 [num_samples]; given, samples are drawn so that all strata come equally
            often: rare ones repeatedly, frequent ones in part.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        seed: int,
        world_size: int = 1,
        rank: int = 0,
        strata: np.ndarray | None = None,
    ) -> None:
        self.num_samples = num_samples
        self.batch_size = batch_size
        self.rank_size = per_rank_batch_size(batch_size, world_size)
        self.seed = seed
        self.world_size = world_size
        self.rank = rank
        self.strata = strata
        self.epoch = 0
        self.first_batch = 0
        full, rest = divmod(num_samples, batch_size)
        rest_per_rank = rest // world_size
        if rest_per_rank < 2 and full:
            rest_per_rank = 0
        self.num_used = full * batch_size + rest_per_rank * world_size
        if not self.num_used:
            raise ValueError(f"{num_samples} training samples are too few for {world_size} ranks")

    @property
    def sampler(self) -> "EpochBatchSampler":
        """Itself: Lightning calls `set_epoch` only on a batch sampler's `sampler`."""
        return self

    @property
    def num_dropped(self) -> int:
        """Samples left out of each epoch."""
        return self.num_samples - self.num_used

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def start_at(self, batch: int) -> None:
        """The next iteration leaves out the batches before this one; those after it are whole."""
        self.first_batch = batch

    def samples_in(self, first_batch: int, last_batch: int) -> int:
        """Samples over all ranks in batches first..last-1 of an epoch."""
        return min(last_batch * self.batch_size, self.num_used) - first_batch * self.batch_size

    def __len__(self) -> int:
        return -(-self.num_used // self.batch_size)

    def __iter__(self) -> Iterator[EpochIndices]:
        epoch, first, self.first_batch = self.epoch, self.first_batch, 0
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(self.num_samples)
        if self.strata is not None:
            order = generator.permutation(balanced(order, self.strata[order], generator.random()))
        for start in range(first * self.batch_size, self.num_used, self.batch_size):
            batch = order[start : min(start + self.batch_size, self.num_used)]
            share = len(batch) // self.world_size
            yield EpochIndices(epoch, batch[self.rank * share : (self.rank + 1) * share])


def balanced(order: np.ndarray, strata: np.ndarray, offset: float) -> np.ndarray:
    """As many samples as given, every stratum equally often, each sample of one as well.

    Systematic resampling: equally spaced points over the samples' weights, so that counts differ
    from their expectation by less than one.

    Args:
        order: int64 [M], the samples in random order.
        strata: int64 [M], of these samples.
        offset: In [0, 1), where the points begin.
    """
    by_stratum = np.argsort(strata, kind="stable")
    _, inverse, counts = np.unique(strata[by_stratum], return_inverse=True, return_counts=True)
    edges = np.cumsum(1.0 / (len(counts) * counts[inverse]))  # [M], ends at 1
    points = (offset + np.arange(len(order))) / len(order)
    found = np.searchsorted(edges, points, side="right").clip(max=len(order) - 1)
    return order[by_stratum[found]]


class TrainingBatches(Protocol):
    """What the batch samplers of training share."""

    rank_size: int

    @property
    def num_dropped(self) -> int: ...

    def set_epoch(self, epoch: int) -> None: ...

    def start_at(self, batch: int) -> None: ...

    def samples_in(self, first_batch: int, last_batch: int) -> int: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[EpochIndices]: ...


class SameBatches(Sampler[EpochIndices]):
    """The first epoch's batches in every epoch, with the same augmentation: for overfitting.

    Args:
        batches: Those of training.
    """

    def __init__(self, batches: TrainingBatches) -> None:
        batches.set_epoch(0)
        self.batches = batches
        self.rank_size = batches.rank_size
        self.num_dropped = batches.num_dropped
        self.start_at = batches.start_at
        self.samples_in = batches.samples_in

    @property
    def sampler(self) -> "SameBatches":
        """Itself: Lightning calls `set_epoch` only on a batch sampler's `sampler`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Every epoch is the first."""

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[EpochIndices]:
        return iter(self.batches)


class EvaluationBatchSampler(Sampler[EpochIndices]):
    """Every sample exactly once over all ranks: nothing padded, nothing dropped."""

    def __init__(
        self, num_samples: int, batch_size: int, world_size: int = 1, rank: int = 0
    ) -> None:
        self.indices = np.arange(rank, num_samples, world_size)
        self.rank_size = per_rank_batch_size(batch_size, world_size)

    def __len__(self) -> int:
        return -(-len(self.indices) // self.rank_size)

    def __iter__(self) -> Iterator[EpochIndices]:
        for start in range(0, len(self.indices), self.rank_size):
            yield EpochIndices(0, self.indices[start : start + self.rank_size])
