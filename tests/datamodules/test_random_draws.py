import numpy as np

from datamodules.random_draws import own_draws, sample_keys, uniform_draws


def test_draws_are_uniform_and_independent():
    draws = uniform_draws(0, 0, np.arange(20_000), 3)
    assert draws.dtype == np.float32
    assert 0 <= draws.min() < draws.max() < 1
    histogram = np.histogram(draws, bins=20, range=(0, 1))[0] / draws.size
    assert np.abs(histogram - 0.05).max() < 0.003
    assert np.abs(np.corrcoef(draws.T) - np.eye(3)).max() < 0.03
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.03


def test_a_draw_belongs_to_seed_epoch_and_sample():
    samples = np.array([5, 900, 2])
    draws = uniform_draws(1, 2, samples, 4)
    assert np.array_equal(uniform_draws(1, 2, samples[1:], 4), draws[1:])
    assert np.array_equal(uniform_draws(1, 2, samples, 2), draws[:, :2])
    for other in (uniform_draws(2, 2, samples, 4), uniform_draws(1, 3, samples, 4)):
        assert not np.isin(other, draws).any()


def test_each_occurrence_of_a_sample_has_its_own_draws() -> None:
    samples, occurrences = np.array([5, 5, 7, 5]), np.array([0, 1, 0, 2])
    draws = uniform_draws(1, 2, samples, 8, occurrences)
    assert len(np.unique(draws)) == draws.size
    alone = uniform_draws(1, 2, samples[1:2], 8, occurrences[1:2])
    assert np.array_equal(alone, draws[1:2])
    first = uniform_draws(1, 2, np.array([5, 7]), 8)
    assert np.array_equal(draws[[0, 2]], first)
    keys = [sample_keys(0, 0, np.arange(5000), np.array(repeat)) for repeat in range(8)]
    assert len(np.unique(np.concatenate(keys))) == 40_000


def test_keys_do_not_collide():
    keys = [sample_keys(seed, epoch, np.arange(5000)) for seed in (0, 1) for epoch in range(4)]
    assert len(np.unique(np.concatenate(keys))) == 40_000


def test_own_draws_are_uniform_and_others_than_those_of_the_batch() -> None:
    keys = sample_keys(3, 1, np.arange(2000))
    draws = own_draws(keys, 8)
    assert draws.dtype == np.float64
    assert draws.min() >= 0
    assert draws.max() < 1
    np.testing.assert_array_equal(draws[5:7], own_draws(keys[5:7], 8))
    np.testing.assert_allclose(np.histogram(draws, 10)[0], 1600, rtol=0.15)
    others = uniform_draws(3, 1, np.arange(2000), 8)
    together = np.corrcoef(np.concatenate([draws, others], axis=1).T)
    assert np.abs(together - np.eye(16)).max() < 0.1
