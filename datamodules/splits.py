"""What splits are called, and stratified choices of samples: every class keeps its share, and a
seed gives the same choice.
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
    targets: np.ndarray, fractions: Sequence[float], seed: int
) -> list[np.ndarray]:
    """Cuts samples into parts in which every class has the same share.

    Args:
        targets: int64 [M], class of each sample.
        fractions: Share of each part; they add up to at most 1.
        seed: The same seed gives the same parts.

    Returns:
        One sorted int64 index array a part, without overlap.

    Raises:
        ValueError: Fractions that are negative or add up to more than 1.
    """
    if min(fractions) < 0 or sum(fractions) > 1 + 1e-9:
        raise ValueError(f"split fractions must be >= 0 and add up to at most 1, got {fractions}")
    generator = np.random.default_rng(seed)
    cuts = np.cumsum(fractions)
    parts: list[list[np.ndarray]] = [[] for _ in fractions]
    for label in np.unique(targets):
        members = generator.permutation(np.flatnonzero(targets == label))
        edges = np.rint(np.concatenate([[0.0], cuts]) * len(members)).astype(int)
        for part, start, stop in zip(parts, edges[:-1], edges[1:], strict=True):
            part.append(members[start:stop])
    nothing = np.zeros(0, np.int64)  # where there are no samples, there are no classes
    return [np.sort(np.concatenate([nothing, *part])) for part in parts]


def stratified_subset(targets: np.ndarray, limit: int | None, seed: int = 0) -> np.ndarray:
    """About `limit` sample indices in which every class has its share (all of them for None)."""
    if limit is None or limit >= len(targets):
        return np.arange(len(targets))
    generator = np.random.default_rng(seed)
    # ranking every sample by its relative place in its own shuffled class interleaves the classes
    place = np.empty(len(targets))
    for label in np.unique(targets):
        members = np.flatnonzero(targets == label)
        place[members] = (generator.permutation(len(members)) + 0.5) / len(members)
    return np.sort(np.argsort(place, kind="stable")[:limit])


def conflicting_pairs(hashes: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Samples that are equal but for their class; int64 [pairs, 2]."""
    order = np.lexsort((targets, hashes))
    first = np.flatnonzero(equal_to_next(hashes[order]))
    pairs = np.stack([order[first], order[first + 1]], axis=1)
    return pairs[targets[pairs[:, 0]] != targets[pairs[:, 1]]]


def repeats(hashes: np.ndarray) -> np.ndarray:
    """Which samples are equal to an earlier one; bool [M]."""
    order = np.argsort(hashes, kind="stable")
    repeated = np.zeros(len(hashes), bool)
    repeated[order[1:]] = equal_to_next(hashes[order])
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
