"""Exact classification metrics: integer counts on the device, read off once an epoch.

All states are integers (losses and confidences in units of 2^-24), so a sum does not depend on
how samples were batched, in which order they came, or on how many ranks they were counted.

N batch, K classes, B confidence bins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

UNIT = 2.0**24
NUM_BINS = 15
TOP_K = 5  # a sample counts for top-k accuracy if its class is among the k likeliest


class ClassificationCounts(Metric):
    """Counts from which every classification metric follows.

    Args:
        num_classes: K.
    """

    full_state_update = False
    confusion: Tensor  # int64 [K,K], rows are true classes
    bins: Tensor  # int64 [3,B]: samples, correct ones, sum of confidences in units
    totals: Tensor  # int64 [3]: sum of losses in units, samples with non-finite loss, top-k hits

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        zeros = {"confusion": (num_classes, num_classes), "bins": (3, NUM_BINS), "totals": (3,)}
        for name, shape in zeros.items():
            self.add_state(name, torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    @torch.no_grad()
    def update(self, logits: Tensor, targets: Tensor, losses: Tensor) -> None:
        """Counts a batch.

        Args:
            logits: float [N,K].
            targets: int64 [N], or float [N,K] (soft targets count as their likeliest class).
            losses: float [N], loss of each sample.
        """
        if targets.ndim == 2:
            targets = targets.argmax(dim=1)
        probabilities, predictions = logits.float().softmax(dim=1).max(dim=1)
        correct = (predictions == targets).long()
        k = self.num_classes
        self.confusion += torch.bincount(targets * k + predictions, minlength=k * k).view(k, k)
        # upper edges belong to their bin, as in Guo et al. 2017
        bins = (probabilities * NUM_BINS).ceil().long().sub(1).clamp(0, NUM_BINS - 1)
        values = torch.stack([torch.ones_like(bins), correct, to_units(probabilities)])
        self.bins.index_add_(1, bins, values)
        finite = losses.isfinite()
        loss_units = to_units(torch.where(finite, losses, 0.0))
        hits = (logits.topk(min(TOP_K, k), dim=1).indices == targets[:, None]).sum()
        self.totals += torch.stack([loss_units.sum(), (~finite).sum(), hits])

    def compute(self) -> dict[str, Tensor]:
        """The counts, summed over ranks."""
        return {"confusion": self.confusion, "bins": self.bins, "totals": self.totals}

    def restore(self, counts: Mapping[str, Tensor]) -> None:
        """Goes on from earlier counts, as `compute` gave them."""
        for name, value in counts.items():
            setattr(self, name, value.to(self.device))
        self._update_count = 1  # not empty: `compute` needs no warning

    def report(self) -> "ClassificationReport":
        """Metrics of all samples counted so far on all ranks."""
        counts = {name: value.cpu().numpy() for name, value in self.compute().items()}
        return ClassificationReport(**counts)

    def scalar_names(self) -> list[str]:
        """Names of all figures that `report` gives as one number."""
        empty = {name: np.zeros(np.shape(value)) for name, value in self.metric_state.items()}
        return list(ClassificationReport(**empty).scalars())


def to_units(values: Tensor) -> Tensor:
    """float -> int64 in units of 2^-24."""
    return (values.float() * UNIT).round().long()


@dataclass(frozen=True)
class ClassificationReport:
    """Metrics computed in float64 from counts; values equal scikit-learn's.

    confusion: int64 [K,K], rows are true classes. bins: int64 [3,B]. totals: int64 [3].
    """

    confusion: np.ndarray
    bins: np.ndarray
    totals: np.ndarray

    @property
    def num_samples(self) -> int:
        return int(self.confusion.sum())

    @property
    def loss(self) -> float:
        if not self.num_samples or self.totals[1]:
            return float("nan")
        return float(self.totals[0] / UNIT / self.num_samples)

    @property
    def accuracy(self) -> float:
        return _share(np.trace(self.confusion), self.num_samples)

    @property
    def top_k_accuracy(self) -> float:
        return _share(self.totals[2], self.num_samples)

    @property
    def support(self) -> np.ndarray:
        """int64 [K], samples of each true class."""
        return self.confusion.sum(axis=1)

    @property
    def precision(self) -> np.ndarray:
        """float64 [K]; 0 where a class was never predicted."""
        return _ratio(np.diag(self.confusion), self.confusion.sum(axis=0))

    @property
    def recall(self) -> np.ndarray:
        """float64 [K]; 0 where a class has no samples."""
        return _ratio(np.diag(self.confusion), self.support)

    @property
    def f1(self) -> np.ndarray:
        """float64 [K]: 2 TP / (2 TP + FP + FN)."""
        return _ratio(2 * np.diag(self.confusion), self.support + self.confusion.sum(axis=0))

    @property
    def calibration_error(self) -> float:
        """Expected calibration error over equal-width bins (Guo et al. 2017, equation 3)."""
        samples, correct, confidence = self.bins
        return _share(np.abs(correct - confidence / UNIT)[samples > 0].sum(), self.num_samples)

    def macro(self, per_class: np.ndarray) -> float:
        """Mean over the classes that occur among targets or predictions, as scikit-learn does."""
        occurs = (self.support + self.confusion.sum(axis=0)) > 0
        return float(per_class[occurs].mean()) if occurs.any() else float("nan")

    def scalars(self) -> dict[str, float]:
        """All figures that are one number, by the name under which they are logged."""
        figures = {
            "loss": self.loss,
            "accuracy": self.accuracy,
            "precision": self.macro(self.precision),
            "recall": self.macro(self.recall),
            "f1": self.macro(self.f1),
            "calibration_error": self.calibration_error,
        }
        if len(self.confusion) > TOP_K:
            figures[f"top_{TOP_K}_accuracy"] = self.top_k_accuracy
        return figures


def _share(part: Any, whole: int) -> float:
    return float(part / whole) if whole else float("nan")


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    result = np.zeros(len(numerator), dtype=np.float64)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result
