"""Batches of texts of similar length, so that little is padding.

Texts are sorted by length with a local shuffle: each moves by at most `WINDOW_SHARE` of all places,
by chance. The borders between batches lie at the same places in every epoch, so that their number,
which learning-rate schedules count on, never changes; what fills them does. Order is a function of
(seed, epoch) alone. Sizes are global: rank r of R takes every R-th text of each batch.
"""

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

from datamodules.samplers import EpochIndices, per_rank_batch_size

WINDOW_SHARE = 0.01


class BucketBatchSampler(Sampler[EpochIndices]):
    """Batches of one rank, by number of texts or by number of tokens.

    In training all ranks get equally many batches of equal size: the few texts that cannot be
    shared equally are left out of that epoch, others in the next. In evaluation each text comes
    exactly once.

    Args:
        lengths: int32 [M], tokens of each text.
        batch_size: Texts in a global batch.
        seed: Together with the epoch it determines the order.
        world_size: Number of ranks.
        rank: This rank.
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
        self.seed = seed
        self.world_size = world_size
        self.rank = rank
        self.training = training
        self.epoch = 0
        self.first_batch = 0
        self.rank_size = per_rank_batch_size(batch_size, world_size)
        longest_first = np.sort(lengths)[::-1]
        self.window = max(1, int(WINDOW_SHARE * len(lengths))) if training else 1
        if batch_tokens is None:
            borders = np.arange(0, len(lengths), batch_size)
        else:
            borders = token_borders(longest_first, batch_tokens, world_size, self.window)
        self.sizes = np.diff(np.append(borders, len(lengths)))
        if training:
            self.sizes = equal_shares(self.sizes, world_size)

    @property
    def sampler(self) -> "BucketBatchSampler":
        """Itself: Lightning calls `set_epoch` only on a batch sampler's `sampler`."""
        return self

    @property
    def num_used(self) -> int:
        """Texts of an epoch over all ranks."""
        return int(self.sizes.sum())

    @property
    def num_dropped(self) -> int:
        """Texts left out of each epoch."""
        return len(self.lengths) - self.num_used

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def start_at(self, batch: int) -> None:
        """The next iteration leaves out the batches before this one; those after it are whole."""
        self.first_batch = batch

    def samples_in(self, first_batch: int, last_batch: int) -> int:
        """Texts over all ranks in batches first..last-1 of this epoch."""
        order = self._batch_order(np.random.default_rng((self.seed, self.epoch)))
        return int(self.sizes[order][first_batch:last_batch].sum())

    def __len__(self) -> int:
        return int((self.sizes > self.rank).sum())

    def __iter__(self) -> Iterator[EpochIndices]:
        epoch, first, self.first_batch = self.epoch, self.first_batch, 0
        generator = np.random.default_rng((self.seed, epoch))
        batch_order = self._batch_order(generator)
        texts = self._text_order(generator)
        stops = np.cumsum(self.sizes)
        for batch in batch_order[first:]:
            share = texts[stops[batch] - self.sizes[batch] + self.rank : stops[batch]]
            if len(share):  # a rank may have none of the last evaluation batch
                yield EpochIndices(epoch, share[:: self.world_size])

    def _batch_order(self, generator: np.random.Generator) -> np.ndarray:
        batches = np.arange(len(self.sizes))
        return generator.permutation(batches) if self.training else batches

    def _text_order(self, generator: np.random.Generator) -> np.ndarray:
        """Longest first; texts of one length in random order; then the local shuffle."""
        if not self.training:
            return np.argsort(-self.lengths, kind="stable")
        shuffled = generator.permutation(len(self.lengths))
        order = shuffled[np.argsort(-self.lengths[shuffled], kind="stable")]
        place = generator.uniform(0, self.window, len(order))
        place += np.arange(len(order))
        return order[np.argsort(place, kind="stable")]


def token_borders(
    longest_first: np.ndarray, batch_tokens: int, world_size: int, window: int
) -> np.ndarray:
    """Where batches begin so that none holds more than `batch_tokens`, padding included.

    Raises:
        ValueError: The budget is too small for the longest text on every rank.
    """
    longest = int(longest_first[0])
    if longest * world_size > batch_tokens:
        raise ValueError(
            f"--data.batch_tokens {batch_tokens} is below the longest text ({longest} tokens) "
            f"times the number of processes ({world_size}); raise it, or lower --data.max_length"
        )
    borders = [0]
    while True:
        start = borders[-1]
        # the local shuffle brings a text at most `window` places forward
        size = batch_tokens // max(int(longest_first[max(0, start - window)]), 1)
        start += size // world_size * world_size
        if start >= len(longest_first):
            return np.array(borders)
        borders.append(start)


def equal_shares(sizes: np.ndarray, world_size: int) -> np.ndarray:
    """Cuts batch sizes to multiples of the ranks; a last single text a rank is left out too,
    since BatchNorm needs two.

    Raises:
        ValueError: Nothing is left.
    """
    shared = sizes // world_size * world_size
    if len(shared) > 1 and shared[-1] == world_size and sizes[-2] > world_size:
        shared[-1] = 0
    if not shared.sum():
        raise ValueError(f"{sizes.sum()} training texts are too few for {world_size} processes")
    return shared[shared > 0]


def padding_share(lengths: np.ndarray, batches: list[np.ndarray]) -> float:
    """Share of padding in the tokens of some batches."""
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - sum(int(lengths[batch].sum()) for batch in batches) / padded
