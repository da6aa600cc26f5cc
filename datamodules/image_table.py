"""A .csv that names pictures and their classes: the columns path, label and, where it wants to fix
the splits, split.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from datamodules.findings import Finding, note, warning
from datamodules.image_listing import Found, ImageListing, join
from datamodules.splits import SPLIT_NAMES
from datamodules.wording import listing, quantity

LONGEST = {"path": 4096, "label": 1000, "split": 100}  # characters; more is a damaged file
SHOWN = 99


def list_table(path: Path, splits: str = "auto") -> ImageListing:
    """Lists a CSV file; relative paths start at its folder.

    Args:
        path: The file.
        splits: "auto" follows the column split, "none" leaves it alone.

    Raises:
        ValueError: Missing columns, empty fields, unknown splits, labels unknown to train, quotes
            that are never closed, rows of another width.
    """
    rows = table_rows(path)
    names = next(rows, (1, []))[1]
    header = [known if (known := name.strip().lower()) in LONGEST else name for name in names]
    wanted = [name for name in LONGEST if name != "split" or splits == "auto"]
    check_header(path, header)
    problems: list[str] = []
    found: Found = {"train": {}}
    without_split = 0
    for line, row in rows:
        fields = dict(zip(header, row, strict=False))
        cells = {name: fields.get(name, "").strip() for name in wanted}
        split = cells.get("split", "").lower()
        if fault := fault_of(cells, len(row), len(header)):
            problems.append(f"{path}, line {line}: {fault}")
            continue
        without_split += "split" in header and splits == "auto" and not split
        classes = found.setdefault(SPLIT_NAMES[split or "train"], {})
        classes.setdefault(cells["label"], []).append(str(path.parent / cells["path"]))
    if not found["train"]:
        problems.append(f"{path}: no rows of train")
    findings: list[Finding] = []
    if without_split:
        rows_without = quantity(without_split, "row without a split")
        findings.append(warning(f"{path.name}: {rows_without} taken for train"))
    if others := [name for name in header if name not in wanted]:
        findings.append(note(f"{path.name}: columns that are not used: {listing(others)}"))
    return join(found, problems, findings, str(path))


def table_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, each with the line where it begins."""
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if row:
                    yield line, row
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except csv.Error as error:
        fault, never_closed = str(error), "a quote that opens in this row is never closed"
        if "unexpected end of data" in fault:
            fault = never_closed
        elif "field limit" in fault:
            fault += f" (perhaps {never_closed})"
        raise ValueError(f"{path}, line {line}: {fault}") from error


def check_header(path: Path, header: Sequence[str]) -> None:
    """Refuses a table whose columns cannot be told."""
    if missing := {"path", "label"} - set(header):
        raise ValueError(
            f"{path}: no column {' and '.join(sorted(missing))}; the first line must name path and "
            f"label, got {listing([name[:SHOWN] for name in header] or ['nothing'])}"
        )
    if twice := [name for name in LONGEST if header.count(name) > 1]:
        raise ValueError(f"{path}: the column {twice[0]} comes {header.count(twice[0])} times")


def fault_of(cells: dict[str, str], width: int, expected: int) -> str | None:
    """What is wrong with a row."""
    if width != expected:
        return f"{quantity(width, 'column')}, the first line has {expected}"
    for name, text in cells.items():
        if len(text) > LONGEST[name]:
            return f"the {name} has {len(text):,} characters: {text[:SHOWN]!r}…"
        if any(ord(letter) < 32 for letter in text):
            return f"the {name} {text[:SHOWN]!r} holds a line break or control character"
    split = cells.get("split", "")
    if cells["path"] and cells["label"] and (not split or split.lower() in SPLIT_NAMES):
        return None
    return (
        f"path {cells['path'][:SHOWN]!r}, label {cells['label'][:SHOWN]!r}, split "
        f"{split[:SHOWN]!r}; expected all given, the split of {', '.join(SPLIT_NAMES)}"
    )
