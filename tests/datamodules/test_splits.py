import hashlib
import time

import numpy as np
import pytest

from datamodules.splits import (
    Fold,
    conflicting_pairs,
    fold_split,
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


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_many_small_classes_give_each_part_its_share(size: int) -> None:
    """80,000 texts in 20,000 classes and the like; one by one the classes would give none."""
    targets = np.random.default_rng(0).permutation(np.repeat(np.arange(20_000), size))
    began = time.perf_counter()
    val, test, train = stratified_split(targets, (0.1, 0.1, 0.8), 0)
    assert time.perf_counter() - began < 5  # a pass over all samples a class takes minutes
    given = [np.bincount(targets[part], minlength=20_000) for part in (val, test, train)]
    assert given[2].min() == 1 if size == 1 else given[2].min() >= size - 1
    if size > 1:
        assert len(val) == len(test) == size * 2_000
        assert max(given[0].max(), given[1].max()) == 1
        for part in given[:2]:  # by chance, not the first classes
            assert part[:10_000].sum() == pytest.approx(size * 1_000, rel=0.1)


def test_what_is_left_open_comes_from_the_largest_remainders() -> None:
    sizes = [14, 16] * 10  # a tenth is 1.4 and 1.6
    targets = np.repeat(np.arange(20), sizes)
    val, train = stratified_split(targets, (0.1, 0.9), 0)
    assert np.bincount(targets[val]).tolist() == [1, 2] * 10
    assert len(val) + len(train) == 300


def test_whole_shares_are_cut_as_ever() -> None:
    """So that runs on data whose classes have equal shares go on with their split."""
    targets = np.random.default_rng(5).permutation(np.repeat(np.arange(10), 500))
    parts = stratified_split(targets, (0.7, 0.15, 0.15), 0)
    digest = hashlib.sha256(b"|".join(part.tobytes() for part in parts))
    assert digest.hexdigest().startswith("c43b94f3eb223643")


@pytest.mark.parametrize(
    ("fractions", "train"), [((0.7, 0.15, 0.15), 0), ((0.15, 0.15, 0.7), -1), ((0.5, 0.5), -1)]
)
def test_train_has_every_class(fractions: tuple[float, ...], train: int) -> None:
    targets = np.repeat(np.arange(60), np.arange(60) % 3 + 1)
    parts = stratified_split(targets, fractions, 1, covers=train)
    assert len(np.unique(targets[parts[train]])) == 60
    assert [len(part) for part in parts] == [round(120 * fraction) for fraction in fractions]


def test_groups_of_many_small_classes_give_each_part_its_share() -> None:
    targets = np.repeat(np.arange(1000), 6)
    groups = np.arange(6000) // 2  # pairs
    val, train = stratified_split(targets, (0.1, 0.9), 0, groups)
    assert len(val) == 600
    assert not {*groups[val]} & {*groups[train]}


def test_the_seed_decides():
    first, same, other = (stratified_split(TARGETS, (0.5, 0.5), seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_no_samples_give_empty_parts() -> None:
    parts = stratified_split(np.zeros(0, np.int64), (0.5, 0.5), 0)
    assert [len(part) for part in parts] == [0, 0]
    assert all(part.dtype == np.int64 for part in parts)


def test_groups_stay_together_and_classes_keep_their_shares() -> None:
    generator = np.random.default_rng(0)
    targets = np.repeat([0, 1], [600, 400])
    groups = generator.integers(0, 300, 1000) + 1000 * targets
    parts = stratified_split(targets, (0.1, 0.2, 0.7), 0, groups)
    assert sorted(np.concatenate(parts)) == list(range(1000))
    held = [set(groups[part]) for part in parts]
    assert len(set().union(*held)) == sum(map(len, held))
    for part, share in zip(parts, (0.1, 0.2, 0.7), strict=True):
        assert np.bincount(targets[part]) / [600, 400] == pytest.approx([share] * 2, abs=0.02)
    again = stratified_split(targets, (0.1, 0.2, 0.7), 0, groups)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_single_samples_are_cut_as_without_groups() -> None:
    alone = stratified_split(TARGETS, (0.15, 0.15, 0.7), 3)
    names = np.array([f"{n * 7919 % 1009}" for n in range(150)])
    groups = stratified_split(TARGETS, (0.15, 0.15, 0.7), 3, names)
    assert all(np.array_equal(a, b) for a, b in zip(alone, groups, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_a_group_larger_than_a_part_comes_into_the_last(seed: int) -> None:
    groups = np.concatenate([np.zeros(400), np.arange(1, 601)])
    val, test, train = stratified_split(np.zeros(1000, int), (0.1, 0.1, 0.8), seed, groups)
    assert (groups[train] == 0).sum() == 400
    assert (len(val), len(test)) == (100, 100)


def test_folds_validate_every_sample_once() -> None:
    targets = np.random.default_rng(1).permutation(np.repeat([0, 1, 2], [101, 40, 9]))
    seen = []
    for number in range(1, 6):
        val, train = fold_split(targets, Fold(number, 5), 3)
        assert np.array_equal(np.sort(np.concatenate([val, train])), np.arange(150))
        assert len(val) == 30
        assert np.abs(np.bincount(targets[val]) - [20.2, 8, 1.8]).max() < 1
        again, _ = fold_split(targets, Fold(number, 5), 3)
        assert np.array_equal(again, val)
        seen.append(val)
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(150))
    assert not np.array_equal(seen[0], fold_split(targets, Fold(1, 5), 4)[0])


def test_folds_keep_groups_together_and_train_has_every_class() -> None:
    targets = np.append(np.repeat([0, 1], 100), [2, 3])  # two classes of one sample
    groups = np.append(np.arange(200) // 4, [900, 7])
    for number in (1, 2, 3):
        val, train = fold_split(targets, Fold(number, 3), 0, groups)
        assert not {*groups[val]} & {*groups[train]}
        assert {*targets[train]} == {0, 1, 2, 3}
        assert 50 <= len(val) <= 72


@pytest.mark.parametrize("text", ["0/5", "6/5", "1/1", "2", "a/b", "1/2/3", ""])
def test_what_is_no_fold(text: str) -> None:
    with pytest.raises(ValueError, match=f"--data.fold is written like 2/5.*got '{text}'"):
        Fold.of(text)
    assert Fold.of("2/5") == (2, 5)
    assert Fold.of(None) is None


def test_equal_samples_of_different_classes_are_paired() -> None:
    hashes = np.array([7, 3, 7, 3, 5, 7])
    pairs = conflicting_pairs(hashes, np.array([0, 1, 0, 1, 0, 2]))
    assert [set(pair) for pair in pairs.tolist()] in ([{2, 5}], [{0, 5}])


def test_of_equal_samples_all_but_the_first_are_repeats() -> None:
    hashes = np.array([b"b", b"a", b"b", b"c", b"a", b"b"], "S16")
    assert repeats(hashes).tolist() == [False, False, True, False, True, True]
    assert repeats(hashes[:0]).tolist() == []
    targets = np.array([0, 0, 1, 0, 1, 0])
    assert repeats(hashes, targets).tolist() == [False, False, False, False, False, True]


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
