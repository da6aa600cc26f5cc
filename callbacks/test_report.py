"""After the test: the per-class table on the screen and the confusion matrix as a picture."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from rich.console import Console
from rich.table import Table

MAX_TABLE_CLASSES = 50
MAX_NUMBERED_CLASSES = 20


class TestReport(pl.Callback):
    """Writes test.json and confusion_matrix.png, and prints precision, recall and F1.

    Args:
        enabled: Whether to report.
    """

    __test__ = False  # not a test case of pytest

    def __init__(self, enabled: bool = True) -> None:
        self.folder: Path | None = None  # without one only the table is printed

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
            draw_confusion_matrix(report.confusion, names, self.folder / "confusion_matrix.png")


def report_values(report: Any, class_names: list[str]) -> dict[str, Any]:
    """The report as plain values."""
    rows = zip(class_names, report.precision, report.recall, report.f1, report.support, strict=True)
    return {
        "num_samples": report.num_samples,
        **report.scalars(),
        "classes": [
            {"name": n, "precision": p, "recall": r, "f1": f, "support": int(s)}
            for n, p, r, f, s in rows
        ],
        "confusion_matrix": report.confusion.tolist(),
    }


def print_report(report: Any, class_names: list[str]) -> None:
    """A row a class (the worst ones where there are very many), then the totals."""
    table = Table(title=f"test, {report.num_samples} samples", title_justify="left")
    table.add_column("class")
    for column in ("precision", "recall", "F1", "samples"):
        table.add_column(column, justify="right")
    shown = np.arange(len(class_names))
    if len(shown) > MAX_TABLE_CLASSES:
        shown = np.argsort(report.f1, kind="stable")[:MAX_TABLE_CLASSES]
        table.caption = f"the {MAX_TABLE_CLASSES} classes with the lowest F1"
    for index in shown:
        figures = (report.precision[index], report.recall[index], report.f1[index])
        table.add_row(
            class_names[index], *(f"{x:.4f}" for x in figures), str(report.support[index])
        )
    table.add_section()
    macro = (report.macro(values) for values in (report.precision, report.recall, report.f1))
    table.add_row("macro mean", *(f"{x:.4f}" for x in macro), str(report.num_samples))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"test accuracy {report.accuracy:.4f}  loss {report.loss:.4f}  "
        f"calibration error {report.calibration_error:.4f}"
    )


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
