"""An epoch's outcomes, whatever the task: their order, every metric of them, and the names.

Rows are sorted by their own bits. Equal rows are interchangeable, so that a sum of floats over the
table does not depend on how samples were batched, in which order they came, or on which rank.

M samples, K outputs.
"""

import difflib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tasks.base import Task


@dataclass(frozen=True)
class Report:
    """What is known of an epoch: the task's table, and every metric by name."""

    outcomes: Any
    scalars: dict[str, float]


def report(task: Task, rows: np.ndarray, scores: np.ndarray | None = None) -> Report:
    """Of the task's rows [M] in canonical order, and the scores [M,K] where they are kept."""
    outcomes = task.outcomes(rows, scores)
    names = metric_names(task, scores is not None)
    return Report(outcomes, {name: task.metrics[name](outcomes) for name in names})


def metric_names(task: Task, has_scores: bool) -> list[str]:
    """Names of the metrics that there are with, or without, scores."""
    return [name for name in task.metrics if has_scores or name not in task.needs_scores]


def monitored_names(task: Task) -> list[str]:
    """Every name that is logged in training."""
    splits = {"train": False, "val": True}  # whether scores are kept
    return [f"{s}/{name}" for s, kept in splits.items() for name in metric_names(task, kept)]


def check_name(group: str, monitor: str, names: list[str]) -> None:
    """Refuses a name that is not logged.

    Raises:
        ValueError: With the nearest name, and all.
    """
    if monitor not in names:
        near = difflib.get_close_matches(monitor, names, n=1, cutoff=0.3)
        raise ValueError(
            f"--{group}.monitor {monitor}: nothing logs that name"
            f"{f'; did you mean {near[0]}?' if near else ''} (available: {', '.join(names)})"
        )


def better_direction(task: Task, monitor: str) -> Literal["min", "max"]:
    """Whether smaller or larger is better, of a name such as val/loss."""
    return "min" if monitor.rpartition("/")[2] in task.smaller_is_better else "max"


def canonical_order(rows: np.ndarray) -> np.ndarray:
    """int32 [M,W] -> int64 [M], the order of the rows by their bits."""
    whole_rows = np.ascontiguousarray(rows).view(np.dtype((np.void, 4 * rows.shape[1])))
    return whole_rows[:, 0].argsort(kind="stable")
