"""Learning curves of a run as one picture, drawn when training ends."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import pytorch_lightning as pl

from callbacks.module_contract import NamesMetrics, main_metric
from callbacks.run_contract import Run

SPLITS = ("train/", "val/")
MAX_CURVES = 12  # of a module that does not say what is monitored


class LearningCurves(pl.Callback):
    """Writes learning_curves.png from metrics.csv.

    Args:
        run: In whose folder it is kept; without one nothing is drawn.
        enabled: Whether to draw.
    """

    def __init__(self, run: Run, enabled: bool = True) -> None:
        self.folder = run.folder

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero and self.folder is not None:
            metrics = self.folder / "metrics.csv"
            if metrics.is_file():
                names = None
                if isinstance(pl_module, NamesMetrics):
                    monitored = (name.partition("/")[2] for name in pl_module.monitored)
                    names = ["loss", main_metric(trainer, pl_module), "lr", *monitored]
                draw_learning_curves(metrics, self.folder / "learning_curves.png", names)


def draw_learning_curves(metrics: Path, path: Path, names: Sequence[str] | None = None) -> None:
    """Loss, main metric, learning rate and what else is monitored, such as val/f1, by epoch.

    Args:
        names: Without val/ and train/; None where they are not known: then all that was logged is
            drawn.
    """
    import matplotlib.figure
    from matplotlib.ticker import MaxNLocator

    with metrics.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if names is None:
        logged = [n for row in rows[:1] for n in row if n.startswith(SPLITS) or n == "lr"]
        names = [n.partition("/")[2] or n for n in logged][:MAX_CURVES]
    names = list(dict.fromkeys(names))
    if not names:
        return
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
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if name == "lr":
            axes.set_yscale("log")
        elif axes.lines:
            axes.legend()
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
