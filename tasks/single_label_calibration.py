"""Probabilities that mean what they say: one temperature, fitted on validation logits.

Guo et al. 2017, "On Calibration of Modern Neural Networks": softmax(logits / T) with the T that
makes the validation set likeliest. The likelihood is concave in 1/T, so its slope has one root. T
changes no decision. Where the samples are few, or do not settle T, it stays 1.

M samples, K classes, B bins.
"""

from typing import Any

import numpy as np

NUM_BINS = 15
MIN_SAMPLES = 100
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
STEPS = 30


def softmax(logits: np.ndarray) -> np.ndarray:
    """[N,K] -> probabilities float64 [N,K]."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def calibrate(logits: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """Fits a temperature and measures what it does.

    Both errors are measured on each half of the samples, the one after with the temperature of
    the other half, so that it is not flattered by having been fitted to them.

    Args:
        logits: float [M,K] of the checkpoint.
        targets: int64 [M].

    Returns:
        "temperature", "samples", "error_before", "error_after", and a "note" where T stays 1.
    """
    before = softmax(logits)
    facts: dict[str, Any] = {
        "temperature": 1.0,
        "samples": len(targets),
        "error_before": calibration_error(before, targets),
        "error_after": calibration_error(before, targets),
        "note": "",
    }
    if len(targets) < MIN_SAMPLES:
        return facts | {"note": f"{MIN_SAMPLES} validation samples are needed to fit a temperature"}
    halves = np.random.default_rng(0).permutation(len(targets)) % 2
    fits = [temperature(logits[halves != half], targets[halves != half]) for half in (0, 1)]
    fitted = temperature(logits, targets)
    if not all(MIN_TEMPERATURE * 1.01 < t < MAX_TEMPERATURE / 1.01 for t in (*fits, fitted)):
        return facts | {"note": "the validation samples set no bound to the temperature"}
    after = softmax(logits / np.choose(halves, fits)[:, None])
    if log_loss(after, targets) >= log_loss(before, targets):
        return facts | {"note": "no temperature helps on samples it was not fitted to"}
    error = calibration_error(after, targets)
    return facts | {"temperature": round(fitted, 6), "error_after": error}


def temperature(logits: np.ndarray, targets: np.ndarray) -> float:
    """The likeliest temperature within the bounds, by bisection of the loss's slope in 1/T."""
    z = logits.astype(np.float64)  # [M,K]
    of_target = np.take_along_axis(z, targets[:, None], axis=1).mean()
    low, high = np.log(1 / MAX_TEMPERATURE), np.log(1 / MIN_TEMPERATURE)
    for _ in range(STEPS):
        middle = (low + high) / 2
        expected = (softmax(np.exp(middle) * z) * z).sum(axis=1).mean()
        low, high = (middle, high) if expected < of_target else (low, middle)
    return float(np.exp(-(low + high) / 2))


def log_loss(probabilities: np.ndarray, targets: np.ndarray) -> float:
    """Mean negative log-likelihood."""
    likelihood = np.take_along_axis(probabilities, targets[:, None], axis=1)
    return float(-np.log(np.maximum(likelihood, np.finfo(np.float64).tiny)).mean())


def calibration_error(probabilities: np.ndarray, targets: np.ndarray) -> float:
    """Expected calibration error: the gap of confidence and accuracy, averaged over the bins."""
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == targets
    # upper edges belong to their bin, as in the paper
    bins = np.clip(np.ceil(confidence * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
    gaps = np.bincount(bins, weights=confidence - correct, minlength=NUM_BINS)
    return float(np.abs(gaps).sum() / len(targets))
