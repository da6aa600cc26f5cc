"""Complete batches, equal on all ranks, the same for the same (seed, epoch)."""

import numpy as np
import pytest

from datamodules.order import (
    BucketBatchSampler,
    EpochBatchSampler,
    EvaluationBatchSampler,
    per_rank_batch_size,
)
from datamodules.packed_texts import padding_share

LENGTHS = np.random.default_rng(0).lognormal(5, 0.7, 5_003).astype(int).clip(1, 400)
MODES = pytest.mark.parametrize("options", [{}, {"batch_tokens": 6_400}])


def ranks(world_size: int, epoch: int = 0, **options: object) -> list[BucketBatchSampler]:
    samplers = [
        BucketBatchSampler(LENGTHS, 32, 1, world_size, rank, **options)  # type: ignore[arg-type]
        for rank in range(world_size)
    ]
    for sampler in samplers:
        sampler.sampler.set_epoch(epoch)
    return samplers


def order(sampler: EpochBatchSampler) -> list[int]:
    return [int(index) for batch in sampler for index in batch.indices]


def test_an_epoch_holds_every_sample_once_in_a_new_order():
    sampler = EpochBatchSampler(50, 8, seed=0)
    first = order(sampler)
    sampler.set_epoch(1)
    second = order(sampler)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert order(EpochBatchSampler(50, 8, seed=0)) == first
    assert order(EpochBatchSampler(50, 8, seed=1)) != first


@pytest.mark.parametrize("num_samples", [48, 50, 53])
@pytest.mark.parametrize("labelled", [False, True])
def test_ranks_share_the_batches_of_one_process(num_samples, labelled):
    labels = np.arange(num_samples) % 3 if labelled else None
    whole = [b.indices.tolist() for b in EpochBatchSampler(num_samples, 12, 0, strata=labels)]
    ranks = [
        [b.indices.tolist() for b in EpochBatchSampler(num_samples, 12, 0, 4, rank, labels)]
        for rank in range(4)
    ]
    assert len({len(batches) for batches in ranks}) == 1
    for step, parts in enumerate(zip(*ranks, strict=True)):
        assert len({len(part) for part in parts}) == 1
        joined = [index for part in parts for index in part]
        assert joined == whole[step][: len(joined)]
        assert len(whole[step]) - len(joined) < 8


@pytest.mark.parametrize(
    ("num_samples", "batch_size", "used"),
    [(9, 4, 8), (10, 4, 10), (8, 4, 8), (1, 4, 1), (5, 1, 5)],
)
def test_only_a_remainder_of_one_is_dropped(num_samples, batch_size, used):
    """BatchNorm needs two values a channel."""
    sampler = EpochBatchSampler(num_samples, batch_size, seed=0)
    assert len(order(sampler)) == used
    assert sampler.num_dropped == num_samples - used
    assert sampler.samples_in(0, len(sampler)) == used


def test_balanced_batches_hold_every_class_equally():
    labels = np.repeat([0, 1, 2], [900, 90, 10])
    counts = np.zeros((3, 1000))
    for epoch in range(3):
        sampler = EpochBatchSampler(1000, 100, seed=0, strata=labels)
        sampler.set_epoch(epoch)
        drawn = order(sampler)
        assert len(drawn) == 1000
        assert np.abs(np.bincount(labels[drawn]) - 1000 / 3).max() < 1
        counts[epoch] = np.bincount(drawn, minlength=1000)
        for label, size in enumerate((900, 90, 10)):  # and every sample of a class as well
            expected = 1000 / 3 / size
            assert np.abs(counts[epoch, labels == label] - expected).max() < 1
    assert not np.array_equal(counts[0], counts[1])


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_sample_that_is_drawn_again_is_counted(world_size: int) -> None:
    """Over the whole epoch, whichever rank and step it comes in."""
    strata = np.repeat([0, 1, 2], [900, 90, 10])
    steps = zip(
        *(EpochBatchSampler(1000, 100, 0, world_size, r, strata) for r in range(world_size)),
        strict=True,
    )
    seen: dict[int, int] = {}
    for batch in (batch for ranks in steps for batch in ranks):
        assert isinstance(batch.occurrences, np.ndarray)
        for sample, occurrence in zip(batch.indices.tolist(), batch.occurrences, strict=True):
            assert occurrence == seen.get(sample, 0)
            seen[sample] = seen.get(sample, 0) + 1
    assert max(seen.values()) > 30


def test_occurrences_after_a_start_in_mid_epoch_are_the_same() -> None:
    sampler = EpochBatchSampler(60, 8, 0, strata=np.repeat([0, 1], [50, 10]))
    whole = [(b.indices.tolist(), list(np.ravel(b.occurrences))) for b in sampler]
    sampler.start_at(3)
    assert [(b.indices.tolist(), list(np.ravel(b.occurrences))) for b in sampler] == whole[3:]


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_neighbour_comes_from_the_whole_batch(world_size: int) -> None:
    for rank in range(world_size):
        plain = EpochBatchSampler(50, 12, 0)
        ranks = EpochBatchSampler(50, 12, 0, world_size, rank, with_neighbour=True)
        for whole, share in zip(plain, ranks, strict=False):
            size = len(whole.indices) // world_size
            batch = whole.indices[: size * world_size]
            expected = np.roll(batch, 1)[rank * size], *batch[rank * size : (rank + 1) * size]
            assert share.indices.tolist() == [*expected]
        assert ranks.samples_in(0, 1) == 12


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_sees_every_sample_exactly_once(world_size):
    seen = [
        int(index)
        for rank in range(world_size)
        for batch in EvaluationBatchSampler(11, 6, world_size, rank)
        for index in batch.indices
    ]
    assert sorted(seen) == list(range(11))


@pytest.mark.parametrize(("batch_size", "fitting"), [(10, "8 or 12"), (3, "4")])
def test_an_indivisible_batch_size_names_what_fits(batch_size, fitting):
    with pytest.raises(ValueError, match=f"multiple of 4; the nearest that fit: {fitting}"):
        per_rank_batch_size(batch_size, 4)


def test_too_few_samples_for_the_ranks():
    with pytest.raises(ValueError, match="3 training samples are too few for 4 processes"):
        EpochBatchSampler(3, 8, 0, world_size=4)


# ---- batches of similar length ---------------------------------------------------------


def batches(sampler: BucketBatchSampler) -> list[np.ndarray]:
    return [batch.indices for batch in sampler]


@MODES
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_training_shares_each_batch_equally_and_repeats_nothing(
    options: dict[str, int], world_size: int
) -> None:
    samplers = ranks(world_size, **options)
    shares = [batches(sampler) for sampler in samplers]
    assert {len(share) for share in shares} == {len(samplers[0])}
    assert all(len({len(b) for b in same}) == 1 for same in zip(*shares, strict=True))
    seen = np.concatenate([batch for share in shares for batch in share])
    assert len(seen) == len(set(seen.tolist())) == samplers[0].num_used
    assert len(LENGTHS) - len(seen) == samplers[0].num_dropped < 3 * world_size


@MODES
def test_every_text_is_used_in_some_epoch(options: dict[str, int]) -> None:
    used = {i for e in range(12) for b in batches(ranks(4, e, **options)[0]) for i in b.tolist()}
    others = {i for e in range(12) for b in batches(ranks(4, e, **options)[3]) for i in b.tolist()}
    assert len(used | others) > 0.99 * len(LENGTHS)


def test_one_and_two_ranks_see_the_same_texts_in_the_same_steps() -> None:
    lengths = LENGTHS[:4_992]  # a multiple of the batch size: nothing is left out
    one, *two = (
        batches(BucketBatchSampler(lengths, 32, 1, size, rank))
        for size, rank in ((1, 0), (2, 0), (2, 1))
    )
    for whole, first, second in zip(one, *two, strict=True):
        assert set(whole.tolist()) == set(first.tolist()) | set(second.tolist())


@MODES
def test_order_is_a_function_of_seed_and_epoch(options: dict[str, int]) -> None:
    first, again = batches(ranks(1, 3, **options)[0]), batches(ranks(1, 3, **options)[0])
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    other = batches(ranks(1, 4, **options)[0])
    assert len(other) == len(first)  # schedules count on it
    assert not any(set(a.tolist()) == set(b.tolist()) for a, b in zip(first, other, strict=True))


@MODES
def test_samples_in_counts_the_batches_as_they_come(options: dict[str, int]) -> None:
    sampler = ranks(1, 2, **options)[0]
    sizes = [len(batch) for batch in batches(sampler)]
    assert [sampler.samples_in(i, i + 1) for i in range(len(sizes))] == sizes
    assert sampler.samples_in(3, 9) == sum(sizes[3:9])
    assert sampler.samples_in(0, len(sampler)) == sampler.num_used


@MODES
def test_samples_are_counted_once_an_epoch(
    options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of training asks, and to draw the order of all batches takes long."""
    sampler = ranks(1, 2, **options)[0]
    sampler.samples_in(0, 1)
    monkeypatch.setattr(np.random, "default_rng", None)
    assert sampler.samples_in(0, 4) == sampler.samples_in(0, 1) + sampler.samples_in(1, 4)
    assert sampler.samples_in(0, 10**9) == sampler.num_used
    monkeypatch.undo()
    sizes = [sampler.samples_in(batch, batch + 1) for batch in range(len(sampler))]
    sampler.set_epoch(3)
    sampler.set_epoch(2)
    assert sizes == [sampler.samples_in(batch, batch + 1) for batch in range(len(sampler))]


def test_a_token_budget_holds_with_padding() -> None:
    for epoch in range(5):
        share = [batches(sampler) for sampler in ranks(2, epoch, batch_tokens=6_400)]
        for first, second in zip(*share, strict=True):
            whole = np.concatenate([first, second])
            assert len(whole) * LENGTHS[whole].max() <= 6_400


def test_a_budget_below_the_longest_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batch_tokens 700 is below the longest text \(400 tok"):
        ranks(2, batch_tokens=700)


def test_few_texts_are_padding() -> None:
    random = np.array_split(np.random.default_rng(1).permutation(len(LENGTHS)), 156)
    share = padding_share(LENGTHS, batches(ranks(1)[0]))
    assert share < 0.05 < 0.4 < padding_share(LENGTHS, list(random))


@MODES
@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("num_texts", [1, 5, 64, 203])
def test_evaluation_gives_every_text_once(
    options: dict[str, int], world_size: int, num_texts: int
) -> None:
    samplers = [
        BucketBatchSampler(LENGTHS[:num_texts], 32, 1, world_size, r, training=False, **options)
        for r in range(world_size)
    ]
    shares = [batches(sampler) for sampler in samplers]
    assert [len(share) for share in shares] == [len(sampler) for sampler in samplers]
    seen = np.concatenate([batch for share in shares for batch in share])
    assert sorted(seen.tolist()) == list(range(num_texts))


def test_a_last_single_text_is_left_out_of_training_but_not_of_evaluation() -> None:
    assert BucketBatchSampler(LENGTHS[:9], 4, 0).num_used == 8
    assert BucketBatchSampler(LENGTHS[:9], 4, 0, training=False).num_used == 9
    with pytest.raises(ValueError, match="3 training samples are too few for 4 processes"):
        BucketBatchSampler(LENGTHS[:3], 4, 0, world_size=4)
