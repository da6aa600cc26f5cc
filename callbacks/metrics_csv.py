"""metrics.csv in the run folder: one row a step at which something was logged, one step axis."""

import csv
from argparse import Namespace
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

FIRST_COLUMNS = ["epoch", "step"]


class MetricsCsv(Logger):
    """Values logged at the same step share a row; an unknown name becomes a new last column.

    Args:
        path: The file.
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self.path = path
        self.columns = list(FIRST_COLUMNS)
        self.rows: list[dict[str, str]] = []
        if path is not None and path.is_file():  # of a run that goes on, if only with its test
            lines = path.read_text(errors="replace", encoding="utf-8").splitlines()
            columns, *rows = [*csv.reader(lines)] or [[]]
            if columns[:2] == FIRST_COLUMNS:  # else damaged: a checkpoint holds the rows as well
                self.columns = columns
                sound = [row for row in rows if row[1:2] and row[1].isdecimal()]
                self.rows = [dict(zip(columns, row, strict=False)) for row in sound]

    @property
    def name(self) -> str:
        return "metrics.csv"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any) -> None:
        """The configuration lies beside, in config.yaml."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        row = {name: f"{value:.9g}" for name, value in metrics.items()}
        if "epoch" in row:
            row["epoch"] = str(int(metrics["epoch"]))
        row["step"] = str(step)
        if self.rows and self.rows[-1]["step"] == row["step"]:
            self.rows[-1].update(row)
        else:
            self.rows.append(row)
        self.columns += sorted(name for name in row if name not in self.columns)

    @rank_zero_only
    def save(self) -> None:
        """Rewrites the file as a whole: it holds a row an epoch, and is never seen half-written."""
        if self.path is None or not self.rows:
            return
        temporary = self.path.with_suffix(".tmp")
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(self.rows)
        temporary.replace(self.path)

    def state(self) -> dict[str, Any]:
        """All rows, as plain values."""
        return {"columns": list(self.columns), "rows": [dict(row) for row in self.rows]}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on below the rows of a checkpoint; those that came after it are dropped."""
        self.columns, self.rows = list(state["columns"]), [dict(row) for row in state["rows"]]
        self.save()
