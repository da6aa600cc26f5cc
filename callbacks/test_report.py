"""After the test: the per-class table on the screen and the confusion matrix as a picture.

Where there are very many classes, the worst of them and what is most often confused stand for all.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from rich.console import Console
from rich.table import Table

from callbacks.run_contract import Run

MAX_TABLE_CLASSES = 50
MAX_NUMBERED_CLASSES = 20
MAX_MATRIX_CLASSES = 100  # as numbers
MAX_DRAWN_CLASSES = 1000  # as a picture
MAX_LISTED_CLASSES = 1000  # in test.json
MAX_LISTED_PAIRS = 50
MAX_PRINTED_PAIRS = 10
IN_TABLE = ("precision", "recall", "f1")
FIRST = ("accuracy", "loss")


class TestReport(pl.Callback):
    """Writes test.json and, of up to 1,000 classes, confusion_matrix.png; prints a row a class.

    Args:
        run: In whose folder it is kept; without one only the table is printed.
        enabled: Whether to report.
    """

    __test__ = False  # not a test case of pytest

    def __init__(self, run: Run, enabled: bool = True) -> None:
        self.folder = run.folder

    def on_test_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not trainer.is_global_zero:
            return
        report, names = pl_module.reports["test"], pl_module.class_names
        print_report(report, names)
        if self.folder is not None:
            values = report_values(report, names)
            (self.folder / "test.json").write_text(
                json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8"
            )
            if len(names) <= MAX_DRAWN_CLASSES:
                picture = self.folder / "confusion_matrix.png"
                draw_confusion_matrix(report.outcomes.confusion(), names, picture)


def report_values(report: Any, class_names: list[str]) -> dict[str, Any]:
    """The report as plain values."""
    outcomes, num_classes = report.outcomes, len(class_names)
    shown = lowest_f1(outcomes, MAX_LISTED_CLASSES)
    columns = (outcomes.precision, outcomes.recall, outcomes.f1, outcomes.support)
    rows = zip(shown.tolist(), *(column[shown].tolist() for column in columns), strict=True)
    values = {
        "num_samples": outcomes.num_samples,
        **report.scalars,
        "num_classes": num_classes,
        "classes": [
            {"name": class_names[i], "precision": p, "recall": r, "f1": f, "support": s}
            for i, p, r, f, s in rows
        ],
        "most_confused": [
            {"true": class_names[t], "predicted": class_names[p], "samples": n}
            for t, p, n in outcomes.confused(MAX_LISTED_PAIRS)
        ],
    }
    if num_classes <= MAX_MATRIX_CLASSES:
        values["confusion_matrix"] = outcomes.confusion().tolist()
    return values


def lowest_f1(outcomes: Any, limit: int) -> np.ndarray:
    """int64, all classes in their order, or the worst ones where there are more than that."""
    if outcomes.num_classes <= limit:
        return np.arange(outcomes.num_classes)
    occurs = np.flatnonzero(outcomes.support)  # of others nothing is known
    return occurs[np.argsort(outcomes.f1[occurs], kind="stable")[:limit]]


def print_report(report: Any, class_names: list[str]) -> None:
    """A row a class (the worst ones where there are very many), then the totals."""
    outcomes, scalars = report.outcomes, report.scalars
    table = Table(title=f"test, {outcomes.num_samples} samples", title_justify="left")
    table.add_column("class")
    for column in ("precision", "recall", "F1", "samples"):
        table.add_column(column, justify="right")
    shown = lowest_f1(outcomes, MAX_TABLE_CLASSES)
    if len(shown) < len(class_names):
        table.caption = f"the {len(shown)} classes with the lowest F1"
    figures = np.stack([outcomes.precision, outcomes.recall, outcomes.f1], axis=1)  # [K,3]
    for index in shown:
        row = (f"{value:.4f}" for value in figures[index])
        table.add_row(class_names[index], *row, str(outcomes.support[index]))
    table.add_section()
    macro = (f"{scalars[name]:.4f}" for name in IN_TABLE)
    table.add_row("macro mean", *macro, str(outcomes.num_samples))
    console = Console(highlight=False)
    console.print(table)
    others = [name for name in scalars if name not in (*IN_TABLE, *FIRST)]
    words = (f"{name.replace('_', ' ')} {scalars[name]:.4f}" for name in (*FIRST, *others))
    console.print("test", "  ".join(words), soft_wrap=True)
    if len(class_names) > MAX_DRAWN_CLASSES:  # instead of the picture
        for true, predicted, count in outcomes.confused(MAX_PRINTED_PAIRS):
            line = f"confused: {class_names[true]} taken for {class_names[predicted]}, {count} x"
            console.print(line, markup=False, soft_wrap=True)


def draw_confusion_matrix(confusion: np.ndarray, class_names: list[str], path: Path) -> None:
    """int64 [K,K], rows are true classes -> a picture, coloured by share of the true class."""
    import matplotlib.figure

    num_classes = len(class_names)
    size = min(4 + 0.45 * num_classes, 16)
    figure = matplotlib.figure.Figure(figsize=(size, size), layout="constrained")
    axes = figure.add_subplot()
    share = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, shrink=0.7, label="share of the true class")
    axes.set(xlabel="predicted class", ylabel="true class", title="Confusion matrix, test split")
    if num_classes <= 2 * MAX_NUMBERED_CLASSES:
        axes.set_xticks(range(num_classes), class_names, rotation=90)
        axes.set_yticks(range(num_classes), class_names)
    if num_classes <= MAX_NUMBERED_CLASSES:
        for row, column in np.argwhere(confusion):
            colour = "white" if share[row, column] > 0.5 else "black"
            axes.text(
                column, row, str(confusion[row, column]), ha="center", va="center", color=colour
            )
    figure.savefig(path, dpi=110)
