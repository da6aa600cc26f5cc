"""What became of each sample of an epoch: the table that single-label metrics are functions of.

N samples, K classes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

TOP_K = 5  # a sample counts for top-k accuracy if its class is among the k likeliest
NAMES = ("target", "prediction", "confidence", "loss")
# a prediction is 2 x the class, + 1 for a top-k hit
ROW = np.dtype([*zip(NAMES, (np.int32, np.int32, np.float32, np.float32), strict=True)])


@dataclass(frozen=True)
class Outcomes:
    """A table of outcomes; the figures of a class are counts of it. Time and memory go by N + K.

    Args:
        num_classes: K.
        targets: int32 [N].
        predictions: int32 [N].
        top_k_hits: bool [N], whether the target is among the likeliest classes.
        confidences: float32 [N], probability of the prediction.
        losses: float32 [N].
        scores: float32 [N,K], probabilities, where they were kept.
    """

    num_classes: int
    targets: np.ndarray
    predictions: np.ndarray
    top_k_hits: np.ndarray
    confidences: np.ndarray
    losses: np.ndarray
    scores: np.ndarray | None = None

    @classmethod
    def from_rows(
        cls, rows: np.ndarray, num_classes: int, scores: np.ndarray | None = None
    ) -> "Outcomes":
        """Of `ROW` [N] in canonical order, and the scores of each row."""
        targets, packed, confidences, losses = map(np.ascontiguousarray, [rows[n] for n in NAMES])
        hits = (packed & 1).astype(bool)
        return cls(num_classes, targets, packed >> 1, hits, confidences, losses, scores)

    @property
    def num_samples(self) -> int:
        return len(self.targets)

    @cached_property
    def hits(self) -> np.ndarray:
        """bool [N], whether the prediction is right."""
        return self.predictions == self.targets

    @cached_property
    def support(self) -> np.ndarray:
        """int64 [K], samples of each true class."""
        return np.bincount(self.targets, minlength=self.num_classes)

    @cached_property
    def predicted(self) -> np.ndarray:
        """int64 [K], samples for which a class was predicted."""
        return np.bincount(self.predictions, minlength=self.num_classes)

    @cached_property
    def true_positives(self) -> np.ndarray:
        """int64 [K]."""
        return np.bincount(self.targets[self.hits], minlength=self.num_classes)

    @property
    def precision(self) -> np.ndarray:
        """float64 [K]; 0 where a class was never predicted."""
        return _ratio(self.true_positives, self.predicted)

    @property
    def recall(self) -> np.ndarray:
        """float64 [K]; 0 where a class has no samples."""
        return _ratio(self.true_positives, self.support)

    @property
    def f1(self) -> np.ndarray:
        """float64 [K]: 2 TP / (2 TP + FP + FN)."""
        return _ratio(2 * self.true_positives, self.support + self.predicted)

    def class_figures(self) -> list[tuple[float, float, float, int]]:
        """Precision, recall, F1 and samples of each class."""
        columns = self.precision, self.recall, self.f1, self.support
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The confusion matrix without its zeros: true class, predicted class, samples; int64."""
        keys = self.targets.astype(np.int64) * self.num_classes + self.predictions
        found, counts = np.unique(keys, return_counts=True)
        return *divmod(found, self.num_classes), counts

    def confused(self, limit: int) -> list[tuple[int, int, int]]:
        """The most frequent mistakes: true class, predicted class, samples."""
        true, predicted, counts = self.pairs()
        order = np.argsort(-counts, kind="stable")
        wrong = order[true[order] != predicted[order]][:limit]
        return [(int(true[i]), int(predicted[i]), int(counts[i])) for i in wrong]

    def confusion(self) -> np.ndarray:
        """int64 [K,K], rows are true classes. Only for few classes: memory goes by their square."""
        matrix = np.zeros((self.num_classes, self.num_classes), dtype=np.int64)
        true, predicted, counts = self.pairs()
        matrix[true, predicted] = counts
        return matrix


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    result = np.zeros(len(numerator), dtype=np.float64)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result
