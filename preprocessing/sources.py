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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from preprocessing.table_flags import TableFlags
from preprocessing.tables import (
    MAX_CHARACTERS,
    TableForm,
    first_lines,
    is_number,
    quoting_of,
    table_form,
    value_problem,
)

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
STANDARD_INPUT = "-"
NAME_LENGTH = 60

Content = str | Path | ValueError


class Sample(NamedTuple):
    """What a sample is called, its text, its file or why it has none, cells of its row that are
    kept for the answer, and those that its reader needs."""

    name: str
    content: Content
    kept: tuple[Any, ...] = ()
    values: tuple[Any, ...] = ()


class Cell(NamedTuple):
    """The line where a row begins, its text or why it has none, the cells to keep, and values."""

    line: int
    content: str | ValueError
    kept: tuple[Any, ...] = ()
    values: tuple[Any, ...] = ()


Rows = Iterator[Cell]


def find_samples(
    texts: Sequence[str],
    names: Sequence[str],
    table: TableFlags,
    takes_text: bool,
    extensions: tuple[str, ...],
    say: Callable[[str], None],
) -> Iterator[Sample]:
    """Every sample that is asked about, in order.

    Args:
        texts: Taken as they are, before all else.
        names: Files, folders, or "-" for the lines of standard input.
        table: How tables are read.
        takes_text: Whether lines and cells are samples themselves; else they are paths.
        extensions: Of what is taken from folders.
        say: Told what was found of a table's form and not declared, and what is skipped.
    """
    for text in texts:
        yield Sample(shortened(text), text)
    for name in names:
        try:
            if name == STANDARD_INPUT:
                yield from as_samples("stdin", standard_input(table.columns), takes_text, Path())
            elif table.columns:
                rows = table_rows(Path(name), table, say)
                yield from as_samples(name, rows, takes_text, Path(name).parent)
            elif os.path.isdir(name):
                yield from walk(name, extensions, say)
            elif takes_text and table_ending(name):
                raise ValueError(f"{name} is a table: say by --column which column holds the text")
            else:
                yield Sample(name, Path(name))
        except (ValueError, OSError, EOFError) as error:
            yield Sample(name, ValueError(str(error)))


def shortened(text: str) -> str:
    """A text as its own name, in one line."""
    line = " ".join(text[: 4 * NAME_LENGTH].split()) or '""'
    return line if len(line) <= NAME_LENGTH else f"{line[: NAME_LENGTH - 1]}…"


def as_samples(origin: str, rows: Rows, takes_text: bool, folder: Path) -> Iterator[Sample]:
    """Names lines and cells by where they stand; or they are paths from `folder`, which are names
    where a row has nothing else."""
    line = 0
    for line, content, kept, values in rows:
        place = f"{origin}:{line}"
        if takes_text or isinstance(content, ValueError):
            yield Sample(place, content, kept)
        elif content.strip():
            path = folder / content.strip()
            yield Sample(place if values else str(path), path, kept, values)
        elif values:
            yield Sample(place, ValueError("no path in this row"), kept)
    if line == 0:
        raise ValueError(f"{origin}: nothing in it")


def walk(folder: str, extensions: tuple[str, ...], say: Callable[[str], None]) -> Iterator[Sample]:
    """The files of a folder and of those in it, each folder's in order of their names; hidden ones
    are skipped and counted. Links are followed, as in training, but never in a circle."""
    found, hidden = False, 0
    walked = {identity(parent) for parent in Path(folder).resolve().parents}
    refused: list[OSError] = []
    for here, folders, names in os.walk(folder, followlinks=True, onerror=refused.append):
        if identity(here) in walked:
            folders.clear()
            continue
        walked.add(identity(here))
        seen = [name for name in (*folders, *names) if not is_hidden(name)]
        hidden += len(folders) + len(names) - len(seen)
        folders[:] = sorted(name for name in folders if name in seen)
        for name in sorted(name for name in names if name in seen):
            if name.lower().endswith(extensions):
                found = True
                yield Sample(os.path.join(here, name), Path(here, name))
    yield from (Sample(str(e.filename), ValueError(str(e.strerror))) for e in refused)
    if hidden:
        say(f"{folder}: {hidden} hidden files or folders are skipped")
    if not found and not refused:
        raise ValueError(f"{folder}: no files with {', '.join(extensions)} in this folder")


def identity(folder: str | Path) -> tuple[int, int]:
    """The same for a folder and every link to it."""
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def is_hidden(name: str) -> bool:
    """Whether a file or folder is no data; `__MACOSX` is left behind in archives."""
    return name.startswith(".") or name == "__MACOSX"


def standard_input(columns: Sequence[str]) -> Rows:
    """Lines, UTF-8; bytes that are not are kept apart, so that only their line is refused."""
    if columns:
        raise ValueError("--column is for tables in files; lines of standard input have no columns")
    sys.stdin.reconfigure(  # type: ignore[union-attr]
        encoding="utf-8-sig", errors="surrogateescape", newline="\n"
    )
    for number, line in enumerate(sys.stdin, start=1):
        yield Cell(number, line.rstrip("\r\n"))


def table_ending(name: str) -> str | None:
    """The suffix that tells a table's form, in lower case; that of gzip does not."""
    inner = name.lower().removesuffix(".gz")
    return next((suffix for suffix in TABLES if inner.endswith(suffix)), None)


def table_rows(path: Path, table: TableFlags, say: Callable[[str], None]) -> Rows:
    """The chosen cells of each row.

    Raises:
        ValueError: The table has no such column, or is damaged from here on.
    """
    ending = table_ending(path.name)
    if ending is None:
        raise ValueError(f"{path}: --column needs a table ({', '.join(TABLES)}, also with .gz)")
    if not path.is_file():
        raise ValueError(f"{path}: no such file (addresses are never fetched)")
    if ending not in (".csv", ".tsv"):
        with open_table(path, table) as stream:
            yield from json_rows(path, stream, table)
        return
    with open_table(path, table) as stream:
        form = table_form(path, first_lines(stream), table.wanted, table.declared)
    for found in form.found:
        say(f"{path}: {found}")
    with open_table(path, table) as stream:
        yield from csv_rows(path, stream, table, form)


def open_table(path: Path, table: TableFlags) -> IO[str]:
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    return opened(path, "rt", encoding=table.encoding, errors="surrogateescape", newline="")


def csv_rows(path: Path, stream: IO[str], table: TableFlags, form: TableForm) -> Rows:
    """Rows of cells between separators."""
    csv.field_size_limit(MAX_CHARACTERS)
    reader = csv.reader(
        stream, delimiter=form.separator, quoting=quoting_of(form.quoted), strict=True
    )
    width, line = 0, 1
    try:
        for row in reader:
            if row and not width:
                width = len(row)
                places, kept, values = (
                    [table.place(path, name, row, form.has_header) for name in names]
                    for names in (table.columns, table.keep, table.values)
                )
                is_data = not form.has_header
            else:
                is_data = bool(row)
            if is_data and len(row) != width:
                yield Cell(line, ValueError(f"{len(row)} columns, the first row has {width}"))
            elif is_data:
                text = " ".join(row[place] for place in places)
                others = (tuple(row[place] for place in some) for some in (kept, values))
                yield Cell(line, text, *others)
            line = reader.line_num + 1
    except csv.Error as error:
        closing = "a quote that opens in this row is never closed"
        reason = closing if "unexpected end of data" in str(error) else error
        raise ValueError(f"{path}:{line}: {reason}") from error


def json_rows(path: Path, stream: IO[str], table: TableFlags) -> Rows:
    """One JSON object a line; numbers are places among the names of the first."""
    names: list[str] = []
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        row = json_object(line)
        if isinstance(row, ValueError):
            yield Cell(number, row)
            continue
        if not names:
            first = list(row)
            names = [
                first[table.place(path, name, first)] if is_number(name) else name
                for name in table.wanted
            ]
        ends = len(table.columns), len(table.columns) + len(table.keep)
        yield json_cell(number, row, names[: ends[0]], names[ends[0] : ends[1]], names[ends[1] :])


def json_cell(
    number: int, row: dict[str, Any], names: list[str], kept: list[str], values: list[str]
) -> Cell:
    """The chosen values of one object."""
    for name in (*names, *kept, *values):
        if name not in row:
            problem = f"no value for {name!r}; there are {', '.join(row)[:200]}"
            return Cell(number, ValueError(problem))
    for name in names:
        if unfit := value_problem(name, row[name]):
            return Cell(number, ValueError(unfit))
    others = (tuple(row[name] for name in some) for some in (kept, values))
    return Cell(number, " ".join(str(row[n]) for n in names), *others)


def json_object(line: str) -> dict[str, Any] | ValueError:
    """A line's object, or why it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return ValueError(f"not JSON: {error}")
    if not isinstance(row, dict):
        return ValueError(f"expected a JSON object, got {line[:60].strip()!r}")
    return row
