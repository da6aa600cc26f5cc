"""After the test: the task's table on the screen, its values in a file, its pictures."""

import importlib
import json

import pytorch_lightning as pl
from rich.console import Console
from rich.table import Table

from callbacks.module_contract import Reports, name_of
from callbacks.run_contract import Run
from tasks.base import Task
from tasks.outcomes import Report

PICTURES: dict[str, str] = {  # by the name of the task: called with report, its values and folder
    "single_label": "callbacks.single_label_pictures",
}


class TestReport(pl.Callback):
    """Writes test.json and pictures; prints a table.

    Args:
        run: In whose folder it is kept; without one only the table is printed.
        enabled: Whether to report.
    """

    __test__ = False  # not a test case of pytest

    def __init__(self, run: Run, enabled: bool = True) -> None:
        self.folder = run.folder

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        if not isinstance(pl_module, Reports):
            self.show_logged(trainer, name_of(pl_module))
            return
        report, task = pl_module.reports["test"], pl_module.task
        print_report(report, task)
        if self.folder is not None:
            values = json.dumps(task.report_values(report), indent=1, ensure_ascii=False)
            (self.folder / "test.json").write_text(values, encoding="utf-8")
            if task.name in PICTURES:
                drawing = importlib.import_module(PICTURES[task.name])
                drawing.draw_test(report, **task.values, folder=self.folder)

    def show_logged(self, trainer: pl.Trainer, module: str) -> None:
        """What a module of another kind has logged of its test."""
        found = {n: float(v) for n, v in trainer.callback_metrics.items() if n.startswith("test")}
        shown = "  ".join(f"{name} {value:.4f}" for name, value in found.items())
        print(f"test report: {module} has no reports; it logged {shown or 'nothing of a test'}")
        if self.folder is not None:
            path = self.folder / "test.json"
            path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def print_report(report: Report, task: Task) -> None:
    """The table, then what it does not show."""
    found, scalars = task.table(report), report.scalars
    table = Table(title=f"test, {report.outcomes.num_samples} samples", title_justify="left")
    table.caption = found.caption or None
    first, *others = found.columns
    table.add_column(first)
    for column in others:
        table.add_column(column, justify="right")
    for row in found.rows:
        table.add_row(*row)
    table.add_section()
    table.add_row(*found.total)
    console = Console(highlight=False)
    console.print(table)
    names = dict.fromkeys([task.main_metric, "loss", *scalars])
    words = (f"{n.replace('_', ' ')} {scalars[n]:.4f}" for n in names if n not in found.metrics)
    console.print("test", "  ".join(words), soft_wrap=True)
    for line in found.notes:
        console.print(line, markup=False, soft_wrap=True)
