"""What splits are called, and stratified choices of samples: every stratum, such as a class, keeps
its share, and a seed gives the same choice.
"""

from collections.abc import Sequence

import numpy as np

SPLITS = ("train", "val", "test")
SPLIT_NAMES = {  # what files, folders and columns call them, in lower case
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


def stratified_split(
    strata: np.ndarray, fractions: Sequence[float], seed: int, groups: np.ndarray | None = None
) -> list[np.ndarray]:
    """Cuts samples into parts in which every stratum has the same share.

    Args:
        strata: int64 [M], of each sample, as its task gives them.
        fractions: Share of each part; they add up to at most 1.
        seed: The same seed gives the same parts.
        groups: [M]; samples of the same group come into the same part, in the share of the
            stratum of the first of them. A group larger than a part comes into the last part.

    Returns:
        One sorted int64 index array a part, without overlap.

    Raises:
        ValueError: Fractions that are negative or add up to more than 1.
    """
    if min(fractions) < 0 or sum(fractions) > 1 + 1e-9:
        raise ValueError(f"split fractions must be >= 0 and add up to at most 1, got {fractions}")
    generator = np.random.default_rng(seed)
    first = group_of = np.arange(len(strata))
    sizes = np.ones(len(strata), np.int64)
    if groups is not None:
        first, group_of, sizes = grouped(groups)
    part_of = np.empty(len(first), np.int64)
    for stratum in np.unique(strata):
        members = generator.permutation(np.flatnonzero(strata[first] == stratum))
        count = sizes[members].sum()
        members = members[np.argsort(sizes[members] > min(fractions) * count, kind="stable")]
        ends = np.cumsum(sizes[members])
        edges = np.rint(np.cumsum(fractions) * count)
        part_of[members] = np.searchsorted(edges, ends - sizes[members] / 2, side="right")
    return [np.flatnonzero(part_of[group_of] == part) for part in range(len(fractions))]


def grouped(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First sample of each group, in this order; group of each sample; size of each group."""
    _, first, group_of, sizes = np.unique(
        groups, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[group_of], sizes[order]


def stratified_subset(strata: np.ndarray, limit: int | None, seed: int = 0) -> np.ndarray:
    """About `limit` sample indices in which every stratum has its share (all of them for None)."""
    if limit is None or limit >= len(strata):
        return np.arange(len(strata))
    generator = np.random.default_rng(seed)
    # ranking every sample by its relative place in its own shuffled stratum interleaves them
    place = np.empty(len(strata))
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        place[members] = (generator.permutation(len(members)) + 0.5) / len(members)
    return np.sort(np.argsort(place, kind="stable")[:limit])


def conflicting_pairs(hashes: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Samples that are equal but for their class; int64 [pairs, 2]."""
    order = np.lexsort((targets, hashes))
    first = np.flatnonzero(equal_to_next(hashes[order]))
    pairs = np.stack([order[first], order[first + 1]], axis=1)
    return pairs[targets[pairs[:, 0]] != targets[pairs[:, 1]]]


def repeats(hashes: np.ndarray, targets: np.ndarray | None = None) -> np.ndarray:
    """Which samples are equal to an earlier one, and of its class where classes are given; bool
    [M]."""
    if targets is None:
        order = np.argsort(hashes, kind="stable")
        equal = equal_to_next(hashes[order])
    else:
        order = np.lexsort((targets, hashes))
        equal = equal_to_next(hashes[order]) & equal_to_next(targets[order])
    repeated = np.zeros(len(hashes), bool)
    repeated[order[1:]] = equal
    return repeated


def found_among(hashes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which samples are equal to one of the others; bool [M]. Takes a third of np.isin's memory."""
    if not len(others):
        return np.zeros(len(hashes), bool)
    others = np.sort(others)
    place = np.searchsorted(others, hashes)
    return others[np.minimum(place, len(others) - 1)] == hashes


def equal_to_next(values: np.ndarray) -> np.ndarray:
    """bool [M-1]."""
    return values[1:] == values[:-1]
