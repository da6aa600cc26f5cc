"""What splits are called, and stratified choices of samples: every stratum, such as a class, keeps
its share, and a seed gives the same choice.
"""

from collections.abc import Sequence
from typing import NamedTuple

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


class Fold(NamedTuple):
    """One of the rounds of a cross-validation."""

    number: int  # from 1
    folds: int

    @staticmethod
    def of(text: str | None) -> "Fold | None":
        """As --data.fold has it, such as 2/5.

        Raises:
            ValueError: It is none.
        """
        if text is None:
            return None
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) != 1):
            raise ValueError(
                f"--data.fold is written like 2/5, the second of five folds; got {text!r}"
            )
        return Fold(int(number), int(count))

    def check(self, is_given: bool) -> None:
        """Raises a ValueError where the data have a val already."""
        if is_given:
            raise ValueError(
                f"--data.fold {self.number}/{self.folds} cuts val out of train, but val is given; "
                "leave --data.fold out, or put the samples of val into train"
            )


def fold_split(
    strata: np.ndarray, fold: Fold, seed: int, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The samples that a fold validates, and those that it trains on, int64 [...] each.

    Every sample is validated by one of the folds, unless it is all there is of its stratum: what
    cannot be learnt stays in train. Arguments are those of `stratified_split`.
    """
    groups = np.arange(len(strata)) if groups is None else groups
    parts = stratified_split(strata, [1 / fold.folds] * fold.folds, seed, groups, covers=None)
    val = parts[fold.number - 1]
    alone = val[~np.isin(strata[val], np.delete(strata, val))]
    val = val[~np.isin(groups[val], groups[alone])]
    return val, np.delete(np.arange(len(strata)), val)


def stratified_split(
    strata: np.ndarray,
    fractions: Sequence[float],
    seed: int,
    groups: np.ndarray | None = None,
    covers: int | None = -1,
) -> list[np.ndarray]:
    """Cuts samples into parts in which every stratum has the same share.

    By largest remainders: a part is as large as its fraction of all samples, and what rounding the
    strata's shares of it down leaves open comes from those that lost most by it, in case of a tie
    by chance.

    Args:
        strata: int64 [M], of each sample, as its task gives them.
        fractions: Share of each part; they add up to at most 1.
        seed: The same seed gives the same parts.
        groups: [M]; samples of the same group come into the same part, in the share of the
            stratum of the first of them. Groups larger than a part come into the last part where
            there are enough others.
        covers: Which part has every stratum, at the cost of the others; None for no such part.

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
    members = by_stratum(strata[first])
    places = np.concatenate([first[:0], *map(generator.permutation, members)])
    counts = np.array([len(some) for some in members], np.int64)
    stratum = np.repeat(np.arange(len(counts)), counts)
    total = np.bincount(stratum, sizes[places])[stratum]  # samples of each one's stratum
    places = places[np.lexsort((sizes[places] > min(fractions) * total, stratum))]
    part_of = np.empty_like(places)
    part_of[places] = allotted(sizes[places], counts, fractions, generator, covers)
    return [np.flatnonzero(part_of[group_of] == part) for part in range(len(fractions))]


def allotted(
    sizes: np.ndarray,
    counts: np.ndarray,
    fractions: Sequence[float],
    generator: np.random.Generator,
    covers: int | None,
) -> np.ndarray:
    """The part of each of G groups that come stratum by stratum, int64 [G].

    Args:
        sizes: int64 [G], samples of each group.
        counts: Groups of each stratum.
        fractions, covers: See `stratified_split`.
        generator: Decides ties.
    """
    ends = np.cumsum(counts)
    stratum = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(sizes) - sizes
    middle = before - before[ends - counts][stratum] + sizes / 2  # of its place in its stratum
    total = np.bincount(stratum, sizes)[stratum]
    chance = generator.random(len(sizes))
    part, none = np.full(len(sizes), len(fractions)), len(fractions)
    if covers is not None:
        part[ends - counts if covers == 0 else ends - 1] = covers % none
    for number, share in enumerate(np.cumsum(fractions)):
        free = np.flatnonzero(part == none)
        order = free[np.lexsort((chance[free], (middle - share * total)[free]))]
        space = np.rint(share * sizes.sum()) - sizes[part <= number].sum()
        part[order[np.cumsum(sizes[order]) - sizes[order] / 2 < space]] = number
    return part


def by_stratum(strata: np.ndarray) -> list[np.ndarray]:
    """The samples of each stratum, in order."""
    order = np.argsort(strata, kind="stable")
    borders = np.flatnonzero(~equal_to_next(strata[order])) + 1
    return np.split(order, borders) if len(order) else []


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
    for members in by_stratum(strata):
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
