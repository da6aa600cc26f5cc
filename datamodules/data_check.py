"""A look at the data before the first step: errors would make the run worthless, warnings may.

"fast" looks at what the datamodule holds already. "full" also reads every file and all pixels or
tokens once more; what it learned of the files stays in the cache until the data changes. What is
looked for in images or texts alone stands in `image_check` and `text_check`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from datamodules.contract import input_spec_of, part
from datamodules.findings import ORDER, Finding, error, texts, warning
from datamodules.label_spelling import spelling_findings
from datamodules.wording import listing
from preprocessing.inputs import named

FEWEST = {"train": 10, "val": 5, "test": 5}  # samples of a class
LARGEST_IMBALANCE = 10
COLOURS = {"error": "red", "warning": "yellow"}


def check_data(data: Any, level: str | bool, folder: Path | None) -> None:
    """Prints errors and warnings, and writes them to data_check.json in the run folder.

    Args:
        data: A datamodule after its setup.
        level: "fast", "full" or "off".
        folder: The run folder, or None.

    Raises:
        ValueError: What would make the run worthless.
    """
    if is_off(level):
        return
    targets = part(data, "split_targets")
    total, names = sum(map(len, targets.values())), data.class_names
    summary = f"{total:,} {part(data, 'noun')}s, {len(names)} classes"
    found = [*bad_values(data), *part(data, "findings"), *part(data, "look")(level == "full")]
    found += bad_classes(targets, names, part(data, "joins_labels"))
    errors = texts(found, "error")
    if folder is not None:
        report = {"level": level, "summary": summary, "errors": errors}
        report["warnings"] = texts(found, "warning")
        text = json.dumps(report, indent=2, ensure_ascii=False)
        (folder / "data_check.json").write_text(text + "\n", encoding="utf-8")
    show(summary, found)
    if errors:
        raise ValueError(
            "the data cannot be trained on (--check_data off does it all the same):\n  "
            + "\n  ".join(errors)
        )


def is_off(level: str | bool) -> bool:
    """Whether nothing is to be looked at."""
    return level in ("off", False)


def notes_of(data: Any, level: str | bool) -> list[str]:
    """What is said when training starts; without a check that also is what asks for a look."""
    return texts(part(data, "findings"), *(ORDER if is_off(level) else ("note",)))


def show(summary: str, found: Sequence[Finding]) -> None:
    """One line, or one table with the errors before the warnings."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    rows = [(severity, text) for severity in COLOURS for text in texts(found, severity)]  # type: ignore[arg-type]
    if not rows:
        console.print(f"data check: {summary}, nothing found")
        return
    errors = sum(severity == "error" for severity, _ in rows)
    console.print(f"data check: {summary}, {errors} errors, {len(rows) - errors} warnings")
    if not console.is_terminal:
        for severity, text in rows:
            console.print(f"  {severity:8} {text}")
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for number, (severity, text) in enumerate(rows, start=1):
        table.add_row(severity, text, style=COLOURS[severity], end_section=number == errors)
    console.print(table)


def bad_values(data: Any) -> Iterator[Finding]:
    """NaN and infinity, in a batch and in what normalises it."""
    inputs = named(data.example_batch()[0], input_spec_of(data).names)
    for values in inputs.values():
        bad = int((~torch.isfinite(values)).sum())
        if bad:
            yield error(f"{bad} of {values.numel()} values of a batch are not finite")
    for name, channels in (part(data, "normalisation") or {}).items():
        if not np.isfinite(channels).all():
            yield error(f"the {name} that images are normalised with is {channels}")


def bad_classes(
    targets: Mapping[str, np.ndarray], names: list[str], can_join: bool
) -> Iterator[Finding]:
    """Classes with too few samples, unequal ones, and those that may be one or several."""
    for split, labels in targets.items():
        counts = np.bincount(labels, minlength=len(names))
        few = np.flatnonzero((counts > 0) & (counts < FEWEST[split]))
        if len(few):
            listed = listing([f"{names[label]} {counts[label]}" for label in few], 5)
            yield warning(
                f"{split}: fewer than {FEWEST[split]} samples of {len(few)} classes ({listed})"
            )
    counts = np.bincount(targets["train"], minlength=len(names))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] > LARGEST_IMBALANCE * counts[least]:
        yield warning(
            f"train: {counts[most]:,} samples of {names[most]}, but {counts[least]:,} of "
            f"{names[least]}; --loss.class_weights balanced weighs all classes alike"
        )
    written = dict(zip(names, counts.tolist(), strict=True))
    yield from map(warning, spelling_findings(written, can_join))
