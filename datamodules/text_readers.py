"""Rows of labelled text from files: tables, JSON lines, Parquet, plain lines, one text a file.

Every reader yields `(text, label, line)`, one row at a time, and every fault names file and line.
CSV is read by Python's own reader in strict mode, since faster ones accept an unclosed quote and
swallow the rest of the file. Any file may be compressed (.gz, .zst, .bz2).
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MAX_CHARACTERS = 1 << 24  # of one text; more is a damaged file
NUM_FAULTS_SHOWN = 5
COMPRESSIONS = (".gz", ".zst", ".bz2")
TEXT_NAMES = ("text", "sentence", "review", "content", "document", "title", "question")
LABEL_NAMES = ("label", "class", "target", "category", "sentiment", "y")
BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)

Row = tuple[str, str, int]


@dataclass(frozen=True)
class Columns:
    """How tables are read.

    text: Names, or numbers from 0, of the columns that are joined by a space; empty finds one by
        its name. label: Name or number; None finds it by its name. header: Whether the first row
        holds names; None looks whether it does. quoted: Whether quotes enclose cells; None says
        yes for CSV and no for TSV. encoding_errors: "strict", or "replace" for stray bytes.
    """

    text: tuple[str | int, ...] = ()
    label: str | int | None = None
    header: bool | None = None
    quoted: bool | None = None
    encoding: str = "auto"
    encoding_errors: str = "strict"


@dataclass(frozen=True)
class TextSource:
    """The files of one split. labels: one a file where the file's name or folder gives it."""

    files: tuple[Path, ...]
    format: str  # a key of READERS
    labels: tuple[str, ...] = ()

    def rows(self, columns: Columns) -> Iterator[tuple[str, str, int, int]]:
        """(text, label, number of the file, line) of every row.

        Raises:
            ValueError: A file is damaged, or not what `columns` says.
        """
        read = READERS[self.format]
        for number, path in enumerate(self.files):
            label = self.labels[number] if self.labels else ""
            try:
                for text, row_label, line in read(path, columns, label):
                    check_text(text, path, line)
                    yield text, row_label, number, line
            except UnicodeError as error:
                raise ValueError(undecodable(path, columns.encoding)) from error
            except (OSError, EOFError, pa.ArrowException) as error:
                raise ValueError(f"{path} cannot be read: {error}") from error


def check_text(text: str, path: Path, line: int) -> None:
    """Refuses what cannot be text."""
    if "\0" in text:
        raise ValueError(
            f"{path}:{line}: a NUL byte: the file is binary, or UTF-16 without a byte order mark "
            "(then --data.encoding utf-16-le or utf-16-be)"
        )
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"{path}:{line}: a text of more than {MAX_CHARACTERS:,} characters: is a line end or a "
            "quote missing?"
        )


def open_bytes(path: Path) -> io.BufferedReader:
    """The decompressed file."""
    return io.BufferedReader(pa.input_stream(str(path), compression="detect"))


def open_text(path: Path, columns: Columns, newline: str = "\n") -> io.TextIOWrapper:
    """The decoded file; "auto" is UTF-8 unless a byte order mark says otherwise."""
    stream, encoding = open_bytes(path), columns.encoding
    if encoding == "auto":
        start = stream.peek(4)
        encoding = next(
            (name for mark, name in BYTE_ORDER_MARKS if start.startswith(mark)), "utf-8"
        )
    return io.TextIOWrapper(stream, encoding, columns.encoding_errors, newline)


def undecodable(path: Path, encoding: str) -> str:
    """Says which byte of which line does not fit the encoding."""
    codec = "utf-8" if encoding == "auto" else encoding
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode(codec)
            except UnicodeDecodeError as error:
                byte = line[error.start]
                likely = "latin-1" if any(0x7F < b < 0xA0 for b in line) else "cp1252"
                return (
                    f"{path}:{number}: byte 0x{byte:02x} at column {error.start + 1} is not "
                    f"{codec}; the file is likely {likely}: add --data.encoding {likely}"
                )
    return f"{path} is not {codec} text; name its encoding by --data.encoding"


def lines_of(path: Path, columns: Columns) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank."""
    with open_text(path, columns) as stream:
        for number, line in enumerate(limited_lines(stream, path), start=1):
            if line.strip():
                yield number, line.rstrip("\r\n")


def limited_lines(stream: io.TextIOWrapper, path: Path) -> Iterator[str]:
    """Lines; one that would fill the memory is refused before it does."""
    for number, line in enumerate(iter(lambda: stream.readline(MAX_CHARACTERS + 1), ""), start=1):
        if len(line) > MAX_CHARACTERS:
            check_text(line, path, number)
        yield line


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


def read_json_lines(path: Path, columns: Columns, label: str) -> Iterator[Row]:
    """One JSON object a line."""
    names = None
    for number, line in lines_of(path, columns):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}:{number}: expected a JSON object, got {line[:60]!r}")
        names = names or choose_columns(path, list(row), columns)
        missing = [name for name in (*names[0], names[1]) if row.get(name) is None]
        if missing:
            raise ValueError(f"{path}:{number}: no value for {', '.join(map(repr, missing))}")
        yield " ".join(str(row[name]) for name in names[0]), str(row[names[1]]), number


def read_parquet(path: Path, columns: Columns, label: str) -> Iterator[Row]:
    """Rows are numbered from 1."""
    with pq.ParquetFile(path) as table:
        text_names, label_name = choose_columns(path, table.schema_arrow.names, columns)
        names = [*text_names, label_name]
        parts = (batch.to_pydict() for batch in table.iter_batches(4096, columns=names))
        rows = (row for cells in parts for row in zip(*(cells[n] for n in names), strict=True))
        for number, row in enumerate(rows, start=1):
            if None in row:
                raise ValueError(f"{path}, row {number}: an empty cell")
            yield " ".join(map(str, row[:-1])), str(row[-1]), number


def read_table(path: Path, columns: Columns, label: str) -> Iterator[Row]:
    """CSV, or TSV where the name ends so."""
    tabs = base_suffix(path) == ".tsv"
    quoted = not tabs if columns.quoted is None else columns.quoted
    csv.field_size_limit(MAX_CHARACTERS)
    with open_text(path, columns, newline="") as stream:
        reader = csv.reader(
            limited_lines(stream, path),
            delimiter="\t" if tabs else ",",
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            strict=True,
        )
        rows = numbered_rows(path, reader)
        start = next(rows, None)
        if start is None:
            return
        first = start[1]
        has_header = names_columns(first, columns) if columns.header is None else columns.header
        names: list[Any] = list(first if has_header else range(len(first)))
        text_names, label_name = choose_columns(path, names, columns, () if has_header else first)
        text_places, label_place = [names.index(n) for n in text_names], names.index(label_name)
        faults = []
        for line, row in rows if has_header else chain([start], rows):
            if len(row) != len(names):
                faults.append(f"line {line} has {len(row)}")
                if len(faults) == NUM_FAULTS_SHOWN:
                    break
            elif not faults:
                yield " ".join(row[i] for i in text_places), row[label_place], line
    if faults:
        raise ValueError(f"{path}: expected {len(names)} columns, but {', '.join(faults)}")


def numbered_rows(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, each with the line where it begins."""
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


def names_columns(first: list[str], columns: Columns) -> bool:
    """Whether a table's first row looks like column names."""
    if wanted := {*columns.text, columns.label} - {None}:
        return any(isinstance(name, str) and name in first for name in wanted)
    cells = {cell.strip().lower() for cell in first}
    return bool(cells & set(TEXT_NAMES)) and bool(cells & set(LABEL_NAMES))


def choose_columns(
    path: Path, names: list[Any], columns: Columns, first: Sequence[str] = ()
) -> tuple[list[Any], Any]:
    """The names (numbers without a header) of the text columns and of the label column.

    `first` is the first row, shown in messages where there are no names.

    Raises:
        ValueError: A column is missing or cannot be told from the names.
    """
    cells = [f"{n} ({cell[:20]})" for n, cell in zip(names, first, strict=False)]
    listed = ", ".join(cells or map(str, names))
    if len(names) < 2:
        raise ValueError(
            f"{path} has one column ({listed[:80]}), but text and label are needed; is it "
            "separated by something other than its name says (.csv: comma, .tsv: tab)?"
        )
    lower = {str(name).strip().lower(): name for name in reversed(names)}
    text: list[Any] = list(columns.text) or [lower[n] for n in TEXT_NAMES if n in lower][:1]
    label: Any = columns.label
    if label is None:
        label = next((lower[n] for n in LABEL_NAMES if n in lower and lower[n] not in text), None)
    # "1" on the command line is a number where the columns have no names
    text = [int(n) if n not in names and str(n).isdecimal() else n for n in text]
    label = int(label) if label not in names and str(label).isdecimal() else label
    by_number = [names[n] if isinstance(n, int) and n < len(names) else n for n in (*text, label)]
    unknown = [n for n in by_number if n not in names and n is not None]
    if unknown or not text or label is None:
        problem = f"no column {unknown[0]!r}" if unknown else "text or label column not told"
        raise ValueError(
            f"{path}: {problem}; its columns are {listed}: name them by --data.text_columns and "
            "--data.label_column"
        )
    return by_number[:-1], by_number[-1]


def base_suffix(path: Path) -> str:
    """Suffix in lower case, without that of a compression."""
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return inner.suffix.lower()


READERS: dict[str, Callable[[Path, Columns, str], Iterator[Row]]] = {
    "table": read_table,
    "jsonl": read_json_lines,
    "parquet": read_parquet,
    "labelled_lines": read_labelled_lines,
    "class_lines": read_plain_lines,
    "class_folders": read_text_file,
}
