import numpy as np
import pytest

from datamodules.samplers import EpochBatchSampler, EvaluationBatchSampler, per_rank_batch_size


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
    with pytest.raises(ValueError, match="3 training samples are too few for 4 ranks"):
        EpochBatchSampler(3, 8, 0, world_size=4)
