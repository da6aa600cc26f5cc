"""Random numbers that are a function of (seed, epoch, sample, occurrence of it in the epoch): the
same for any number of workers or ranks, for any batch composition, and after a resume."""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_OWN = np.uint64(0xD1B54A32D192ED03)  # any other odd number would do
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MOST_SAMPLES = 40  # bits; the rest counts occurrences
_MIX2 = np.uint64(0x94D049BB133111EB)


def sample_keys(
    seed: int, epoch: int, samples: np.ndarray, occurrences: np.ndarray | int = 0
) -> np.ndarray:
    """One well-mixed uint64 [N] a sample; one that comes again counts as another far away."""
    key = _mix(np.array([seed % 2**63, epoch], dtype=np.uint64))
    apart = samples + np.left_shift(occurrences, _MOST_SAMPLES)
    return _mix(_mix(apart.astype(np.uint64) + key[0]) + key[1])


def uniform_draws(
    seed: int,
    epoch: int,
    samples: np.ndarray,
    num_draws: int,
    occurrences: np.ndarray | int = 0,
) -> np.ndarray:
    """float32 [N, num_draws] in [0, 1), independent over samples, epochs and draws."""
    keys = sample_keys(seed, epoch, samples, occurrences)
    steps = np.arange(1, num_draws + 1, dtype=np.uint64)
    bits = _mix(keys[:, None] + steps[None, :] * _GOLDEN)
    return ((bits >> np.uint64(40)) * 2.0**-24).astype(np.float32)  # the top 24 bits


def own_draws(keys: np.ndarray, num_draws: int) -> np.ndarray:
    """uint64 [N] keys -> float64 [N, num_draws] in [0, 1), independent of `uniform_draws`."""
    steps = np.arange(1, num_draws + 1, dtype=np.uint64)
    bits = _mix(_mix(keys ^ _OWN)[:, None] + steps[None, :] * _GOLDEN)
    return (bits >> np.uint64(11)) * 2.0**-53  # the top 53 bits


def _mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele et al. 2014); wraps around on purpose."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _MIX1
    values = (values ^ (values >> np.uint64(27))) * _MIX2
    return values ^ (values >> np.uint64(31))
