"""What a task is: all that depends on what a target means, for training, export and prediction.

N batch, M samples, K outputs.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tasks import TASKS

DEFAULT_TASK = "single_label"  # of checkpoints and bundles that name none


@dataclass(frozen=True)
class Comparison:
    """What another file than the checkpoint does to its decisions, with the words for it."""

    decision: str = "decision"  # what one is called
    metric: str = "score"  # what `score` is
    agreement: float = 0.0  # percent of samples with the same decision
    flipped: int = 0  # samples that the checkpoint decides clearly, and the file otherwise
    score: float = 0.0  # percent
    difference: float = 0.0  # of the score from the checkpoint's, in points
    step: float = 0.0  # what one sample can change of it, in points
    paired: dict[str, Any] = field(default_factory=dict)  # what is behind it, as plain values
    words: str = ""  # likewise

    def scores(self) -> dict[str, Any]:
        """What a manifest says of it."""
        found = {self.metric: self.score, f"{self.metric}_difference": self.difference}
        return found | {"paired": self.paired}


@dataclass(frozen=True)
class Table:
    """A table for people; the first column names the row."""

    columns: list[str]
    rows: list[list[Any]]
    total: list[str] = field(default_factory=list)  # a last row, apart from the others
    caption: str = ""
    metrics: tuple[str, ...] = ()  # those whose totals it shows
    notes: list[str] = field(default_factory=list)  # lines below


class Task(Protocol):
    """What a target means. Built from plain values, compared by them, and picklable."""

    name: str  # in TASKS
    values: dict[str, Any]  # what it is built from; description and manifest hold them too
    num_outputs: int  # K, the last axis of a network's outputs [N,K]
    target_dtype: str
    target_shape: tuple[int, ...]  # of one target
    decision: str  # what a decision is called
    main_metric: str  # what decides about the best checkpoint, the gate and a bundle's scores
    row: np.dtype  # fields of 4 bytes, one of them "loss": what is kept of a sample in training
    prediction_columns: list[str]  # of `prediction_rows`
    smaller_is_better: set[str]  # metrics that fall with a better model
    needs_scores: set[str]  # metrics of an evaluation's scores [M,K], which are kept where they fit

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "Task":
        """Takes its own out of a description or manifest.

        Raises:
            ValueError: They lack something.
        """

    # ---- targets -----------------------------------------------------------------------

    def bad_target(self, targets: np.ndarray) -> str | None:
        """What is wrong with targets [N,...]: the row, what it is and what was expected."""

    def strata(self, targets: np.ndarray) -> np.ndarray:
        """Targets [M,...] -> int64 [M]; equal ones are spread evenly over parts of the data."""

    # ---- metrics -----------------------------------------------------------------------

    @property
    def metrics(self) -> Mapping[str, Callable[[Any], float]]:
        """Functions of the table of outcomes, by name."""

    def outcomes(self, rows: np.ndarray, scores: np.ndarray | None) -> Any:
        """Structured `row` [M] in canonical order, float32 [M,K] or None -> the table."""

    # ---- decisions ---------------------------------------------------------------------

    def evaluate(self, outputs: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
        """What a manifest says of outputs [M,K]: the main metric by its name, in 0..1, and more."""

    def compare(
        self, outputs: np.ndarray, reference: np.ndarray, targets: np.ndarray
    ) -> Comparison:
        """A file's outputs [M,K] with the checkpoint's: are decisions the same, is the score?"""

    def calibrate(self, outputs: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
        """Finds the temperature that makes probabilities mean what they say.

        Returns:
            "temperature", "samples", "error_before", "error_after" and a "note", why it is 1.
        """

    def answers(
        self, outputs: np.ndarray, temperature: float, top_k: int, threshold: float
    ) -> list[list[tuple[str, float]]]:
        """Finite outputs [N,K] -> for each its decisions and their probabilities, best first."""

    # ---- words -------------------------------------------------------------------------

    def report_values(self, report: Any) -> dict[str, Any]:
        """A `Report` as plain values."""

    def table(self, report: Any) -> Table:
        """A `Report` for the screen."""

    def tables(self, outcomes: Any) -> dict[str, Table]:
        """More of it for a logger, by name."""

    def prediction_rows(self, columns: Mapping[str, np.ndarray]) -> list[list[Any]]:
        """Fields of `row`, [N] each -> a row a sample for people."""

    def card(self, evaluation: Mapping[str, Any] | None) -> dict[str, Any]:
        """What a model card says of the task, and of what `evaluate` found."""

    def differences(
        self, other: "Task", a: Mapping[str, Any] | None, b: Mapping[str, Any] | None
    ) -> list[str]:
        """What differs between two models of this kind, A and B, by what `evaluate` found."""


def build_task(values: Mapping[str, Any]) -> Task:
    """The task that a description or manifest names, built from the values beside.

    Raises:
        ValueError: There is no such task, or it lacks a value.
    """
    name = values.get("task", DEFAULT_TASK)
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"unknown task {name!r}; there are {', '.join(TASKS)}")
    module, _, found = TASKS[name].rpartition(".")
    task: type[Task] = getattr(importlib.import_module(module), found)
    return task.from_values(values)
