"""Learning curves of a run as one picture, drawn when training ends."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from callbacks.run_contract import Run

SPLITS = ("train/", "val/")


class LearningCurves(pl.Callback):
    """Writes learning_curves.png from metrics.csv.

    Args:
        run: In whose folder it is kept; without one nothing is drawn.
        enabled: Whether to draw.
    """

    def __init__(self, run: Run, enabled: bool = True) -> None:
        self.folder = run.folder

    def on_fit_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.is_global_zero and self.folder is not None:
            metrics = self.folder / "metrics.csv"
            if metrics.is_file():
                names = ["loss"]  # a module of one's own may log nothing else
                if task := getattr(pl_module, "task", None):
                    names.append(task.main_metric)
                monitored = getattr(pl_module, "monitored", ())
                names += ["lr", *(name.partition("/")[2] for name in monitored)]
                draw_learning_curves(metrics, self.folder / "learning_curves.png", names)


def draw_learning_curves(metrics: Path, path: Path, names: Sequence[str]) -> None:
    """Loss, main metric, learning rate and what else is monitored, such as val/f1, by epoch."""
    import matplotlib.figure
    from matplotlib.ticker import MaxNLocator

    with metrics.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = list(dict.fromkeys(names))
    num_rows = math.ceil(len(names) / 3)
    figure = matplotlib.figure.Figure(figsize=(12, 3.6 * num_rows), layout="constrained")
    for index, name in enumerate(names):
        axes = figure.add_subplot(num_rows, 3, index + 1)
        columns = ["lr"] if name == "lr" else [split + name for split in SPLITS]
        label = "learning rate" if name == "lr" else name.replace("_", " ")
        for number, column in enumerate(columns):
            points = [(int(r["epoch"]) + 1, float(r[column])) for r in rows if r.get(column)]
            if points:
                (line,) = axes.plot(*zip(*points, strict=True), marker="o", markersize=3)
                line.set(color=f"C{number}", label=column)
        axes.set(xlabel="epoch", ylabel=label, title=label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if name == "lr":
            axes.set_yscale("log")
        elif axes.lines:
            axes.legend()
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
