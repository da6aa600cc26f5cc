import numpy as np
import pytest

from datamodules.splits import (
    conflicting_pairs,
    found_among,
    repeats,
    stratified_split,
    stratified_subset,
)

TARGETS = np.repeat([0, 1, 2], [100, 40, 10])


def test_every_part_has_the_same_shares():
    parts = stratified_split(TARGETS, (0.7, 0.2, 0.1), seed=0)
    assert sorted(np.concatenate(parts)) == list(range(150))
    assert [np.bincount(TARGETS[part]).tolist() for part in parts] == [
        [70, 28, 7], [20, 8, 2], [10, 4, 1],
    ]  # fmt: skip


def test_the_seed_decides():
    first, same, other = (stratified_split(TARGETS, (0.5, 0.5), seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_no_samples_give_empty_parts() -> None:
    parts = stratified_split(np.zeros(0, np.int64), (0.5, 0.5), 0)
    assert [len(part) for part in parts] == [0, 0]
    assert all(part.dtype == np.int64 for part in parts)


def test_equal_samples_of_different_classes_are_paired() -> None:
    hashes = np.array([7, 3, 7, 3, 5, 7])
    pairs = conflicting_pairs(hashes, np.array([0, 1, 0, 1, 0, 2]))
    assert [set(pair) for pair in pairs.tolist()] in ([{2, 5}], [{0, 5}])


def test_of_equal_samples_all_but_the_first_are_repeats() -> None:
    hashes = np.array([b"b", b"a", b"b", b"c", b"a", b"b"], "S16")
    assert repeats(hashes).tolist() == [False, False, True, False, True, True]
    assert repeats(hashes[:0]).tolist() == []


def test_samples_found_among_others() -> None:
    hashes = np.array([b"b", b"a", b"d", b"c", b"a"], "S16")
    others = np.array([b"c", b"aa", b"a", b"c"], "S16")
    assert found_among(hashes, others).tolist() == [False, True, False, True, True]
    assert found_among(hashes, others[:0]).tolist() == [False] * 5
    assert found_among(hashes[:0], others).tolist() == []


@pytest.mark.parametrize("fractions", [(0.9, 0.2), (-0.1, 0.5)])
def test_impossible_fractions(fractions):
    with pytest.raises(ValueError, match="at most 1, got"):
        stratified_split(TARGETS, fractions, 0)


@pytest.mark.parametrize("limit", [15, 30, 149])
def test_a_limited_subset_keeps_the_shares(limit):
    counts = np.bincount(TARGETS[stratified_subset(TARGETS, limit)], minlength=3)
    assert counts.sum() == limit
    assert np.abs(counts - limit * np.array([100, 40, 10]) / 150).max() < 1.5


@pytest.mark.parametrize("limit", [None, 150, 1000])
def test_no_limit_means_all(limit):
    assert len(stratified_subset(TARGETS, limit)) == 150
