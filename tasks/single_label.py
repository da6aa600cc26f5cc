"""Every sample has one label of K classes: int64, counted from 0 in the order of the class names.

N batch, M samples, K classes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks import single_label_metrics as metrics
from tasks import single_label_report as words
from tasks.base import Comparison, Table, Task
from tasks.outcomes import Report
from tasks.single_label_calibration import calibrate, softmax
from tasks.single_label_outcomes import ROW, TOP_K, Outcomes

CLEAR_MARGIN = 1e-3  # between the two best logits: beyond it the class must be the same
Z_95 = 1.96


class SingleLabel:
    """A `base.Task`.

    Args:
        class_names: K names, in the order of the logits.
    """

    name = "single_label"
    target_dtype = "int64"
    target_shape: tuple[int, ...] = ()
    decision = "class"
    main_metric = "accuracy"
    row = ROW
    prediction_columns = ["true", "predicted", "probability"]
    smaller_is_better = metrics.SMALLER_IS_BETTER
    needs_scores = metrics.NEEDS_SCORES

    def __init__(self, class_names: Sequence[str]) -> None:
        self.class_names = list(class_names)
        self.values: dict[str, Any] = {"class_names": self.class_names}
        self.num_outputs = len(self.class_names)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "SingleLabel":
        """Takes "class_names" out of a description or manifest.

        Raises:
            ValueError: They are missing, or no list of texts.
        """
        names = values.get("class_names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{cls.name} needs class_names, a list of texts; got {names!r:.80}")
        return cls(names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleLabel) and other.values == self.values

    __hash__ = None  # type: ignore[assignment]

    # ---- targets -----------------------------------------------------------------------

    def bad_target(self, targets: np.ndarray) -> str | None:
        """Integers [N] in 0..K-1 are right."""
        if targets.ndim != 1 or targets.dtype.kind not in "iu":
            found, expected = list(targets.shape), [len(targets) if targets.ndim else 1]
            return f"targets are {targets.dtype} {found}, expected integers {expected}"
        outside = np.flatnonzero((targets < 0) | (targets >= self.num_outputs))
        if not len(outside):
            return None
        more = f" ({len(outside)} such rows)" if len(outside) > 1 else ""
        return (
            f"label {targets[outside[0]]} in row {outside[0]} lies outside "
            f"0..{self.num_outputs - 1}{more}; labels count from 0"
        )

    def strata(self, targets: np.ndarray) -> np.ndarray:
        """The class."""
        return targets

    # ---- metrics -----------------------------------------------------------------------

    @property
    def metrics(self) -> Mapping[str, metrics.Metric]:
        """All of METRICS; top-k accuracy only where there are more classes than k."""
        left_out = metrics.TOP_K_ACCURACY if self.num_outputs <= TOP_K else None
        return {name: metric for name, metric in metrics.METRICS.items() if name != left_out}

    def outcomes(self, rows: np.ndarray, scores: np.ndarray | None) -> Outcomes:
        return Outcomes.from_rows(rows, self.num_outputs, scores)

    # ---- decisions ---------------------------------------------------------------------

    def evaluate(self, outputs: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
        """Accuracy, and the scores of each class."""
        rows = np.zeros(len(targets), ROW)
        rows["target"], rows["prediction"] = targets, 2 * outputs.argmax(axis=1)
        outcomes = self.outcomes(rows, None)
        return {"accuracy": metrics.accuracy(outcomes), "classes": words.class_scores(outcomes)}

    def compare(
        self, outputs: np.ndarray, reference: np.ndarray, targets: np.ndarray
    ) -> Comparison:
        """Classes and accuracy, sample by sample."""
        found, expected = outputs.argmax(axis=1), reference.argmax(axis=1)
        ordered = np.sort(reference.astype(np.float64), axis=1)
        clear = ordered[:, -1] - ordered[:, -2] > CLEAR_MARGIN
        right, was_right = found == targets, expected == targets
        return paired(
            lost=int((was_right & ~right).sum()),
            won=int((right & ~was_right).sum()),
            total=len(targets),
            score=100 * int(right.sum()) / len(targets),
            agreement=float(100 * (found == expected).mean()),
            flipped=int(((found != expected) & clear).sum()),
        )

    def calibrate(self, outputs: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
        return calibrate(outputs, targets)

    def answers(
        self, outputs: np.ndarray, temperature: float, top_k: int, threshold: float
    ) -> list[list[tuple[str, float]]]:
        """The likeliest classes by name, of those that are likely enough."""
        probabilities = softmax(outputs / temperature)
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :top_k]
        shown = np.take_along_axis(probabilities, best, axis=1)
        rows = (zip(*row, strict=True) for row in zip(best.tolist(), shown.tolist(), strict=True))
        return [[(self.class_names[k], p) for k, p in row if p >= threshold] for row in rows]

    # ---- words -------------------------------------------------------------------------

    def report_values(self, report: Report) -> dict[str, Any]:
        return words.report_values(report, self.class_names)

    def table(self, report: Report) -> Table:
        return words.table(report, self.class_names)

    def tables(self, outcomes: Outcomes) -> dict[str, Table]:
        return {"confusion_matrix": words.confusion_table(outcomes, self.class_names)}

    def prediction_rows(self, columns: Mapping[str, np.ndarray]) -> list[list[Any]]:
        found = columns["target"], columns["prediction"] >> 1, columns["confidence"]
        return [
            [self.class_names[target], self.class_names[prediction], round(probability, 6)]
            for target, prediction, probability in zip(*(x.tolist() for x in found), strict=True)
        ]

    def card(self, evaluation: Mapping[str, Any] | None) -> dict[str, Any]:
        return words.card(self.class_names, evaluation)

    def differences(
        self, other: Task, a: Mapping[str, Any] | None, b: Mapping[str, Any] | None
    ) -> list[str]:
        names = self.class_names, other.values["class_names"]
        return words.differences(*names, a, b)


def paired(lost: int, won: int, total: int, **others: Any) -> Comparison:
    """A `Comparison` by the samples that only the checkpoint, or only the file, has right."""
    low, high = interval(lost, won, total)
    return Comparison(
        decision=SingleLabel.decision,
        metric=SingleLabel.main_metric,
        difference=100 * (won - lost) / total,
        step=100 / total,
        paired={"samples": total, "lost": lost, "won": won, "interval_95": (low, high)},
        words=f"{lost} lost and {won} won of {total}, 95 % interval {low:+.2f} to {high:+.2f}",
        **others,
    )


def interval(lost: int, won: int, total: int) -> tuple[float, float]:
    """95 % interval of the paired accuracy difference, in points.

    Agresti and Min (2005), "Simple improved confidence intervals for comparing matched
    proportions": Wald's interval after half a sample is added to each of the four cells.
    """
    n, b, c = total + 2, lost + 0.5, won + 0.5
    centre = (c - b) / n
    half = Z_95 * math.sqrt(max(0.0, (b + c) - (c - b) ** 2 / n)) / n
    return 100 * (centre - half), 100 * (centre + half)
