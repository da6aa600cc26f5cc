"""How predictions are printed: as a table, CSV or JSON lines, each as soon as it is there.

What an answer is called ("class") is said by the task. Copied into every bundle; imports nothing
but the standard library.
"""

import csv
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

TABLE_ROWS = 50  # the widths of a table's columns are those of its first rows


@dataclass(frozen=True)
class Prediction:
    """The most probable answers to one sample, best first; none where none is probable enough."""

    name: str
    answers: list[tuple[str, float]]
    kept: tuple[Any, ...] = ()  # cells of its row, in the order in which they were asked for


def print_table(predictions: Iterator[Prediction], decision: str, arguments: Namespace) -> None:
    """Columns divided by two spaces."""
    header = ["input", decision, "probability"]
    header += [text for k in range(2, arguments.top_k + 1) for text in (f"{decision} {k}", "")]
    nothing = f"no {decision} above {arguments.threshold:g}", ""
    rows = (
        [p.name, *(s for name, x in p.answers for s in (name, f"{x:.2%}"))]
        if p.answers
        else [p.name, *nothing]
        for p in predictions
    )
    first = list(islice(rows, TABLE_ROWS))
    widths = [
        max(len(row[i]) if i < len(row) else 0 for row in [header, *first])
        for i in range(max(map(len, first), default=0))
    ]
    for some in (([header] if first else []), first, rows):
        for row in some:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=False)).rstrip())


def print_csv(predictions: Iterator[Prediction], decision: str, arguments: Namespace) -> None:
    """One row an answer; a sample without one has a single row of rank 0 with empty cells. Kept
    columns come last, under their names."""
    columns = ["input", "rank", decision, "probability"]
    kept = [f"{name} (kept)" if name in columns else name for name in arguments.keep]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*columns, *kept])
    for prediction in predictions:
        cells = [as_cell(value) for value in prediction.kept]
        for rank, (name, p) in enumerate(prediction.answers, start=1):
            writer.writerow([prediction.name, rank, name, f"{p:.6f}", *cells])
        if not prediction.answers:
            writer.writerow([prediction.name, 0, "", "", *cells])


def as_cell(value: Any) -> str:
    """A JSON value in a table: texts as they are, null as nothing."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def print_jsonl(predictions: Iterator[Prediction], decision: str, arguments: Namespace) -> None:
    """One object a sample; a sample without an answer has an empty list."""
    for prediction in predictions:
        found = [{decision: name, "probability": round(p, 6)} for name, p in prediction.answers]
        line: dict[str, Any] = {"input": prediction.name, "predictions": found}
        if arguments.keep:
            line["kept"] = dict(zip(arguments.keep, prediction.kept, strict=True))
        print(json.dumps(line, ensure_ascii=False))


FORMS = {"table": print_table, "csv": print_csv, "jsonl": print_jsonl}
