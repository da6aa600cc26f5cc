"""The confusion matrix of the test as a picture, where there are not too many classes to see it."""

from pathlib import Path
from typing import Any

import numpy as np

from tasks.single_label_report import MAX_DRAWN_CLASSES

MAX_NUMBERED_CLASSES = 20


def draw_test(report: Any, class_names: list[str], folder: Path) -> None:
    """Writes confusion_matrix.png from the outcomes of a test."""
    if len(class_names) <= MAX_DRAWN_CLASSES:
        path = folder / "confusion_matrix.png"
        draw_confusion_matrix(report.outcomes.confusion(), class_names, path)


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
