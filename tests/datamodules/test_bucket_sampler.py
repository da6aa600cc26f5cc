"""Batches of similar length: complete, equal on all ranks, the same for the same (seed, epoch)."""

import numpy as np
import pytest

from datamodules.bucket_sampler import BucketBatchSampler, padding_share

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
    with pytest.raises(ValueError, match="3 training texts are too few for 4 processes"):
        BucketBatchSampler(LENGTHS[:3], 4, 0, world_size=4)
