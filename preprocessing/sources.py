"""What predict.py is asked about: texts, files, folders, tables and lines, one sample at a time.

Nothing is collected, so memory does not grow with the input, and the order is kept. A sample that
cannot be read is an error in its place; those after it are still read. Tables are read by the same
rules as in training.
"""

import csv
import gzip
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

MAX_CHARACTERS = 1 << 24  # of one cell; more is a damaged file
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
STANDARD_INPUT = "-"
NAME_LENGTH = 60

Content = str | Path | ValueError
Rows = Iterator[tuple[int, str | ValueError]]  # line where it begins, and the cell


def find_samples(
    texts: Sequence[str],
    names: Sequence[str],
    columns: Sequence[str],
    kind: str,
    extensions: tuple[str, ...],
) -> Iterator[tuple[str, Content]]:
    """What each sample is called, and its text, its file, or why it has none.

    Args:
        texts: Taken as they are, before all else.
        names: Files, folders, or "-" for the lines of standard input.
        columns: Names, or numbers from 0, of a table's columns, joined by a space; empty where
            `names` are no tables.
        kind: "text", or "image": then lines and cells are paths.
        extensions: Of what is taken from folders.
    """
    for text in texts:
        yield shortened(text), text
    for name in names:
        try:
            if name == STANDARD_INPUT:
                yield from as_content("stdin", standard_input(columns), kind, Path())
            elif columns:
                rows = table_rows(Path(name), columns)
                yield from as_content(name, rows, kind, Path(name).parent)
            elif os.path.isdir(name):
                yield from ((str(inside), inside) for inside in walk(name, extensions))
            elif kind == "text" and table_form(name):
                raise ValueError(f"{name} is a table: say by --column which column holds the text")
            else:
                yield name, Path(name)
        except (ValueError, OSError, EOFError) as error:
            yield name, ValueError(str(error))


def shortened(text: str) -> str:
    """A text as its own name, in one line."""
    line = " ".join(text[: 4 * NAME_LENGTH].split()) or '""'
    return line if len(line) <= NAME_LENGTH else f"{line[: NAME_LENGTH - 1]}…"


def as_content(origin: str, rows: Rows, kind: str, folder: Path) -> Iterator[tuple[str, Content]]:
    """Names lines and cells by where they stand; for pictures they are paths from `folder`."""
    line = 0
    for line, content in rows:  # noqa: B007
        if kind == "text" or isinstance(content, ValueError):
            yield f"{origin}:{line}", content
        elif content.strip():
            yield str(folder / content.strip()), folder / content.strip()
    if line == 0:
        raise ValueError(f"{origin}: nothing in it")


def walk(folder: str, extensions: tuple[str, ...]) -> Iterator[Path]:
    """The files of a folder and of those in it, each folder's in order of their names."""
    found = False
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.lower().endswith(extensions):
                found = True
                yield Path(here, name)
    if not found:
        raise ValueError(f"{folder}: no files with {', '.join(extensions)} in this folder")


def standard_input(columns: Sequence[str]) -> Rows:
    """Lines, UTF-8; bytes that are not are kept apart, so that only their line is refused."""
    if columns:
        raise ValueError("--column is for tables in files; lines of standard input have no columns")
    sys.stdin.reconfigure(  # type: ignore[union-attr]
        encoding="utf-8-sig", errors="surrogateescape", newline="\n"
    )
    for number, line in enumerate(sys.stdin, start=1):
        yield number, line.rstrip("\r\n")


def table_form(name: str) -> str | None:
    """The suffix that tells a table's form, in lower case; that of gzip does not."""
    inner = name.lower().removesuffix(".gz")
    return next((suffix for suffix in TABLES if inner.endswith(suffix)), None)


def table_rows(path: Path, columns: Sequence[str]) -> Rows:
    """The chosen cells of each row.

    Raises:
        ValueError: The table has no such column, or is damaged from here on.
    """
    form = table_form(path.name)
    if form is None:
        raise ValueError(f"{path}: --column needs a table ({', '.join(TABLES)}, also with .gz)")
    if not path.is_file():
        raise ValueError(f"{path}: no such file (addresses are never fetched)")
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        if form in (".csv", ".tsv"):
            yield from csv_rows(path, stream, columns, tabs=form == ".tsv")
        else:
            yield from json_rows(stream, columns)


def csv_rows(path: Path, stream: IO[str], columns: Sequence[str], tabs: bool) -> Rows:
    """CSV with quotes, or TSV without."""
    csv.field_size_limit(MAX_CHARACTERS)
    reader = csv.reader(
        stream,
        delimiter="\t" if tabs else ",",
        quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL,
        strict=True,
    )
    places, width, line = [0], 0, 1
    try:
        for row in reader:
            if not width:
                width, has_header = len(row), any(name in row for name in columns)
                places = [column_place(path, name, row, has_header) for name in columns]
            if len(row) not in (0, width):
                yield line, ValueError(f"{len(row)} columns, the first row has {width}")
            elif row and not (line == 1 and has_header):
                yield line, " ".join(row[place] for place in places)
            line = reader.line_num + 1
    except csv.Error as error:
        closing = "a quote that opens in this row is never closed"
        reason = closing if "unexpected end of data" in str(error) else error
        raise ValueError(f"{path}:{line}: {reason}") from error


def column_place(path: Path, name: str, first: list[str], has_header: bool) -> int:
    """Where a column stands: by its name in the first row, or by its number from 0."""
    if name in first:
        return first.index(name)
    if name.isdecimal() and int(name) < len(first):
        return int(name)
    known = ", ".join(first) if has_header or not name.isdecimal() else f"0 to {len(first) - 1}"
    raise ValueError(f"{path} has no column {name!r}; it has {known[:200]}")


def json_rows(stream: IO[str], columns: Sequence[str]) -> Rows:
    """One JSON object a line."""
    for number, line in enumerate(stream, start=1):
        if line.strip():
            yield number, json_cell(line, columns)


def json_cell(line: str, columns: Sequence[str]) -> str | ValueError:
    """The chosen values of one object."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return ValueError(f"not JSON: {error}")
    if not isinstance(row, dict):
        return ValueError(f"expected a JSON object, got {line[:60].strip()!r}")
    for name in columns:
        if name not in row:
            return ValueError(f"no value for {name!r}; there are {', '.join(row)[:200]}")
        if isinstance(row[name], bool) or not isinstance(row[name], str | int | float):
            return ValueError(f"{name!r} holds {json.dumps(row[name])[:60]}, expected a text")
    return " ".join(str(row[name]) for name in columns)
