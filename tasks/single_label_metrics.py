"""Single-label metrics: functions of the table of outcomes. A new one is a function and a line in
METRICS.

Its name is then valid wherever one is monitored, and stands in every log, plot and report. A metric
falls with a better model if it stands in SMALLER_IS_BETTER, and may use `outcomes.scores` if it
stands in NEEDS_SCORES; those are there for validation and test, where they are not too large.

N samples, K classes.
"""

from collections.abc import Callable

import numpy as np

from tasks.single_label_outcomes import TOP_K, Outcomes

Metric = Callable[[Outcomes], float]
NUM_BINS = 15


def loss(outcomes: Outcomes) -> float:
    """Mean over the samples; one that is not finite spoils it."""
    if not np.isfinite(outcomes.losses).all():
        return float("nan")
    return _share(outcomes.losses.sum(dtype=np.float64), outcomes.num_samples)


def accuracy(outcomes: Outcomes) -> float:
    return _share(outcomes.hits.sum(), outcomes.num_samples)


def top_k_accuracy(outcomes: Outcomes) -> float:
    return _share(outcomes.top_k_hits.sum(), outcomes.num_samples)


def precision(outcomes: Outcomes) -> float:
    return macro(outcomes, outcomes.precision)


def recall(outcomes: Outcomes) -> float:
    return macro(outcomes, outcomes.recall)


def f1(outcomes: Outcomes) -> float:
    return macro(outcomes, outcomes.f1)


def macro(outcomes: Outcomes, per_class: np.ndarray) -> float:
    """Mean over the classes that occur among targets or predictions, as scikit-learn does."""
    occurs = (outcomes.support + outcomes.predicted) > 0
    return float(per_class[occurs].mean()) if occurs.any() else float("nan")


def balanced_accuracy(outcomes: Outcomes) -> float:
    """Mean recall of the classes that have samples."""
    occurs = outcomes.support > 0
    return float(outcomes.recall[occurs].mean()) if occurs.any() else float("nan")


def calibration_error(outcomes: Outcomes) -> float:
    """Expected calibration error over equal-width bins (Guo et al. 2017, equation 3)."""
    confidences = outcomes.confidences
    if not np.isfinite(confidences).all():
        return float("nan")
    # upper edges belong to their bin, as in the paper
    bins = np.ceil(confidences * np.float32(NUM_BINS)).astype(np.int64) - 1
    bins = bins.clip(0, NUM_BINS - 1)
    correct = np.bincount(bins[outcomes.hits], minlength=NUM_BINS)
    confidence = np.bincount(bins, weights=confidences, minlength=NUM_BINS)
    return _share(np.abs(correct - confidence).sum(), outcomes.num_samples)


def auroc(outcomes: Outcomes) -> float:
    """Mean area under the ROC curve of one class against the rest, of those that have both.

    A class's area is the share of pairs of a positive and a negative sample that its scores put in
    the right order, ties being half of one: counts, without a rounding.
    """
    scores, positives = outcomes.scores, outcomes.support
    classes = np.flatnonzero((positives > 0) & (positives < outcomes.num_samples))
    if scores is None or not len(classes) or not np.isfinite(scores).all():
        return float("nan")
    areas = []
    for index in classes:
        column = scores[:, index]
        positive = column[outcomes.targets == index]
        column = np.sort(column)
        # twice the rank, from 1, of each positive one among all
        ranks = np.searchsorted(column, positive) + np.searchsorted(column, positive, "right") + 1
        num_pairs = len(positive) * (len(column) - len(positive))
        areas.append((ranks.sum() - len(positive) * (len(positive) + 1)) / (2 * num_pairs))
    return float(np.mean(areas))


TOP_K_ACCURACY = f"top_{TOP_K}_accuracy"  # only where there are more classes than that
METRICS: dict[str, Metric] = {
    "loss": loss,
    "accuracy": accuracy,
    "precision": precision,
    "recall": recall,
    "f1": f1,
    "calibration_error": calibration_error,
    TOP_K_ACCURACY: top_k_accuracy,
    "balanced_accuracy": balanced_accuracy,
    "auroc": auroc,
}
SMALLER_IS_BETTER = {"loss", "calibration_error"}
NEEDS_SCORES = {"auroc"}


def _share(part: float, whole: int) -> float:
    return float(part / whole) if whole else float("nan")
