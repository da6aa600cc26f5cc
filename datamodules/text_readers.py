"""Rows of labelled text from files: tables, JSON lines, Parquet, plain lines, one text a file.

Every reader yields `(text, label, line)`, one row at a time, and every fault names file and line.
CSV is read by Python's own reader in strict mode, since faster ones accept an unclosed quote and
swallow the rest of the file.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from datamodules.text_columns import ChosenColumns, Columns, choose_columns
from datamodules.text_decoding import check_text, explained, limited_lines, lines_of, open_text
from preprocessing.tables import (
    MAX_CHARACTERS,
    TableForm,
    first_lines,
    quoting_of,
    table_form,
    value_problem,
)

NUM_FAULTS_SHOWN = 5
PLAIN = {str, int}  # what needs no second look
JSON_TYPES = (str, int, float, list, dict)

Label = str | int | float  # true and false are numbers, too
Row = tuple[str, Label, int]


@dataclass(frozen=True)
class TextSource:
    """The files of one split. labels: one a file where the file's name or folder gives it. notes:
    what lies beside them and is not used."""

    files: tuple[Path, ...]
    format: str  # a key of READERS
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def rows(self, columns: Columns) -> Iterator[tuple[str, Label, int, int]]:
        """(text, label as it stands there, number of the file, line) of every row.

        Raises:
            ValueError: A file is damaged, or not what `columns` says.
        """
        read = READERS[self.format]
        for number, path in enumerate(self.files):
            label = self.labels[number] if self.labels else ""
            with explained(path, columns):
                for text, row_label, line in read(path, columns, label):
                    check_text(text, path, line)
                    yield text, row_label, number, line

    def chosen(self, columns: Columns) -> ChosenColumns | None:
        """The columns of text and label; None where there are none to choose from.

        Raises:
            ValueError: They cannot be found, or the file cannot be read.
        """
        if self.format not in CHOOSERS:
            return None
        with explained(self.files[0], columns):
            return CHOOSERS[self.format](self.files[0], columns)


def read_text_file(path: Path, columns: Columns, label: str) -> Iterator[Row]:
    """One text a file."""
    with open_text(path, columns) as stream:
        yield stream.read(MAX_CHARACTERS + 1), label, 1


def read_plain_lines(path: Path, columns: Columns, label: str) -> Iterator[Row]:
    """One text a line, all of one class."""
    return ((line, label, number) for number, line in lines_of(path, columns))


def read_labelled_lines(path: Path, columns: Columns, label: str) -> Iterator[Row]:
    """`LABEL:fine text`, the form of TREC; the coarse label counts."""
    for number, line in lines_of(path, columns):
        if not (found := re.match(r"(\w+):\S*\s+(.*)", line)):
            raise ValueError(f"{path}:{number}: expected 'LABEL:fine text', got {line[:60]!r}")
        yield found[2], found[1], number


def json_objects(path: Path, columns: Columns) -> Iterator[tuple[int, dict[str, Any]]]:
    """One JSON object a line."""
    for number, line in lines_of(path, columns):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}:{number}: expected a JSON object, got {line[:60]!r}")
        yield number, row


def json_columns(path: Path, columns: Columns) -> ChosenColumns | None:
    """Places among the names of the first object."""
    first = next(json_objects(path, columns), None)
    return first and choose_columns(path, list(first[1]), True, columns)


def read_json_lines(path: Path, columns: Columns, label: str) -> Iterator[Row]:
    if (chosen := json_columns(path, columns)) is None:
        return
    names = [chosen.first[n] for n in (*chosen.text, chosen.label)]
    for number, row in json_objects(path, columns):
        values: list[Any] = [row.get(name) for name in names]
        if not PLAIN.issuperset(map(type, values)) and (problem := row_problem(names, values)):
            raise ValueError(f"{path}:{number}: {problem}")
        yield " ".join(map(str, values[:-1])), values[-1], number


def row_problem(names: Sequence[str], values: Sequence[Any]) -> str | None:
    """What is neither text nor number; the last value is the label."""
    for name, value, left in zip(names, values, range(len(names), 0, -1), strict=True):
        if value is None:
            return f"no value for {name!r}"
        if not isinstance(value, str) and (problem := value_problem(name, value, left == 1)):
            return problem
    return None


def parquet_columns(path: Path, columns: Columns) -> ChosenColumns:
    return choose_columns(path, pq.read_schema(path).names, True, columns)


def read_parquet(path: Path, columns: Columns, label: str) -> Iterator[Row]:
    """Rows are numbered from 1."""
    chosen = parquet_columns(path, columns)
    names = [chosen.first[n] for n in (*chosen.text, chosen.label)]
    with pq.ParquetFile(path) as table:
        for number, (is_plain, row) in enumerate(parquet_rows(table, names), start=1):
            if not is_plain and (problem := row_problem(names, row)):
                raise ValueError(f"{path}, row {number}: {problem}")
            yield " ".join(map(str, row[:-1])), row[-1], number


def parquet_rows(table: pq.ParquetFile, names: list[str]) -> Iterator[tuple[bool, tuple]]:
    """Rows, each with whether it needs no second look."""
    for batch in table.iter_batches(4096, columns=names):
        cells = batch.to_pydict()
        columns = [cells[name] for name in names]
        is_plain = all(PLAIN.issuperset(map(type, column)) for column in columns)
        if not is_plain:
            columns = [list(map(plain_value, column)) for column in columns]
        yield from ((is_plain, row) for row in zip(*columns, strict=True))


def plain_value(value: Any) -> Any:
    """Bytes as text, dates and the like as they are written; what JSON knows stays."""
    if isinstance(value, bytes):
        return value.decode()
    return value if value is None or isinstance(value, JSON_TYPES) else str(value)


def look_at(path: Path, columns: Columns) -> TableForm:
    """The form of a table, by its first lines; without a first row where there is none."""
    with open_text(path, columns, newline="") as stream:
        lines = first_lines(limited_lines(stream, path))
    form = table_form(path, lines, columns.wanted, columns.declared, "--data.")
    if form.first or not lines:
        return form
    # the first row is longer than what was looked at, or damaged
    return replace(form, first=next(table_rows(path, columns, form), (0, []))[1])


def table_columns(path: Path, columns: Columns) -> ChosenColumns | None:
    form = look_at(path, columns)
    if not form.first:
        return None
    return choose_columns(path, form.first, form.has_header, columns, form.found)


def read_table(path: Path, columns: Columns, label: str) -> Iterator[Row]:
    """CSV and the like."""
    form = look_at(path, columns)
    if not form.first:
        return
    chosen = choose_columns(path, form.first, form.has_header, columns)
    width, faults = len(form.first), []
    for line, row in islice(table_rows(path, columns, form), int(form.has_header), None):
        if len(row) != width:
            faults.append(f"line {line} has {len(row)}")
            if len(faults) == NUM_FAULTS_SHOWN:
                break
        elif not faults:
            yield " ".join(row[n] for n in chosen.text), row[chosen.label], line
    if faults:
        raise ValueError(f"{path}: expected {width} columns, but {', '.join(faults)}")


def table_rows(path: Path, columns: Columns, form: TableForm) -> Iterator[tuple[int, list[str]]]:
    """All rows that are not blank, each with the line where it begins."""
    with open_text(path, columns, newline="") as stream:
        yield from numbered_rows(
            path,
            csv.reader(
                limited_lines(stream, path),
                delimiter=form.separator,
                quoting=quoting_of(form.quoted),
                strict=True,
            ),
        )


def numbered_rows(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """What the reader gives, with lines, and its faults in our words."""
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            closing = "a quote that opens in this row is never closed"
            reason = closing if "unexpected end of data" in str(error) else str(error)
            raise ValueError(
                f"{path}:{line}: {reason}; where quotes are part of the text: --data.quoted false"
            ) from error
        if row:
            yield line, row


CHOOSERS: dict[str, Callable[[Path, Columns], ChosenColumns | None]] = {
    "table": table_columns,
    "jsonl": json_columns,
    "parquet": parquet_columns,
}
READERS: dict[str, Callable[[Path, Columns, str], Iterator[Row]]] = {
    "table": read_table,
    "jsonl": read_json_lines,
    "parquet": read_parquet,
    "labelled_lines": read_labelled_lines,
    "class_lines": read_plain_lines,
    "class_folders": read_text_file,
}
