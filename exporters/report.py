"""The table that an export ends with, and its recommendation.

Scores are the checkpoint's in its own row, and differences from them in points in the others.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exporters.benchmark import EAGER
from exporters.model_card import score_cells
from exporters.verdict import FAILED, PASSED, UNAVAILABLE, UNVERIFIED
from tasks.base import build_task

COLOURS = {PASSED: "green", FAILED: "red", UNVERIFIED: "yellow", UNAVAILABLE: "dim"}
NARROW = 2


def print_report(manifest: Mapping[str, Any], console: Console) -> None:
    """One row a format, the reasons of what did not pass, one recommendation."""
    table = Table(box=None, padding=(0, NARROW, 0, 0), pad_edge=False, header_style="bold")
    for name in ("format", "file"):
        table.add_column(name, no_wrap=True)
    for name in ("MB", "parity", "val %", "test %", "ms"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("verdict", no_wrap=True)
    eager, metric = manifest["eager"], build_task(manifest).main_metric
    cells = *score_cells(eager, metric, ".2f"), milliseconds(eager["latency"])
    table.add_row(EAGER, "", "", "", *cells, "reference")
    for name, entry in manifest["artifacts"].items():
        table.add_row(*row(name, entry, metric))
    console.print(table)
    for name, entry in manifest["artifacts"].items():
        for reason in [*entry["reasons"], *entry["notes"]]:
            console.print(Text(f"{name}: {reason}"))
    console.print(Text(manifest["recommendation"]))


def row(name: str, entry: Mapping[str, Any], metric: str) -> list[str | Text]:
    """The cells of one format."""
    megabytes = f"{entry['bytes'] / 1e6:.2f}" if entry["bytes"] else ""
    return [
        name,
        entry["file"] or "",
        megabytes,
        parity(entry["parity"]),
        *score_cells(entry, f"{metric}_difference", "+.2f"),
        milliseconds(entry["latency"]),
        Text(entry["verdict"], style=COLOURS[entry["verdict"]]),
    ]


def parity(facts: Mapping[str, Any] | None) -> str:
    """FP32: largest logit difference; INT8: share of equal decisions."""
    if facts is None:
        return ""
    if facts["sqnr_db"] is not None:
        return f"{facts['agreement']:.2f} %"
    return f"{facts['max_difference']:.1e}"


def milliseconds(latency: list[dict[str, Any]] | None) -> str:
    """Median of batch 1 on one thread."""
    for entry in latency or []:
        if entry["batch"] == 1 and entry["threads"] == 1:
            return f"{entry['p50_ms']:.2f}"
    return ""


def recommendation(manifest: Mapping[str, Any]) -> str:
    """The last line: what to use on this machine, and what of its speed is known."""
    chosen = manifest["recommended"]
    if chosen is None:
        return "Recommended: none; no format passed."
    entry = manifest["artifacts"][chosen]
    speed = f"{1 / entry['time_score']:.1f}x as fast as eager, " if entry["time_score"] else ""
    agreement, decision = entry["parity"]["agreement"], build_task(manifest).decision
    return (
        f"Recommended on this machine: {chosen} ({speed}the checkpoint's {decision} for "
        f"{agreement:.2f} % of {manifest['num_samples']} samples)."
    )
