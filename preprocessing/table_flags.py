"""The flags of predict.py that say which columns of tables are read, and how."""

import argparse
import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from preprocessing.tables import Declared, find_column, one_separator


@dataclass(frozen=True)
class TableFlags:
    """Which columns of tables are read, and what is declared of their form.

    columns: Names, or numbers from 0, of a table's columns, joined by a space; empty where there
        are no tables. keep: Columns that are kept for the answer. encoding: Of tables. values:
        Columns that the model's reader needs beside them, as of a box.
    """

    columns: Sequence[str] = ()
    keep: Sequence[str] = ()
    declared: Declared = Declared()
    encoding: str = "utf-8-sig"
    values: Sequence[str] = ()

    @property
    def wanted(self) -> tuple[str, ...]:
        """All columns."""
        return (*self.columns, *self.keep, *self.values)

    def place(self, path: Path, wanted: str, first: list[str], has_header: bool = True) -> int:
        """Where a column stands.

        Raises:
            ValueError: The table has no such column.
        """
        try:
            return find_column(wanted, first, has_header)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def add_table_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    # fmt: off
    add("--column", action="append", default=[],
        help="the files are tables (.csv, .tsv, .jsonl, also with .gz): the column of the texts or "
        "paths, by its name in the first row or its number from 0; several are joined by a space")
    add("--keep", action="append", default=[], metavar="COLUMN",
        help="a column that csv and jsonl answers repeat, as an id or the text; may be repeated")
    add("--separator", type=separator, help="character between a table's cells, or tab")
    add("--header", type=truth, help="true or false: whether a table's first row names columns")
    add("--quoted", type=truth, help="true or false: whether quotes enclose a table's cells")
    add("--encoding", type=encoding, default="utf-8-sig", help="of tables; default: utf-8")
    # fmt: on


def table_flags(arguments: argparse.Namespace) -> TableFlags:
    declared = Declared(arguments.separator, arguments.quoted, arguments.header)
    return TableFlags(arguments.column, arguments.keep, declared, arguments.encoding)


def table_flag_problem(arguments: argparse.Namespace) -> str | None:
    """What cannot be done as it is asked for."""
    if arguments.keep and not arguments.column:
        return "--keep is for tables: --column says which column is read"
    if arguments.keep and arguments.format == "table":
        return "--keep needs --format csv or jsonl"
    return None


def separator(text: str) -> str:
    try:
        return str(one_separator(text, "expected"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"expected true or false, got {text!r}")
    return text == "true"


def encoding(text: str) -> str:
    """The name of an encoding of text; a byte order mark of UTF-8 does not count."""
    try:
        "".encode(text)
    except LookupError as error:
        raise argparse.ArgumentTypeError(f"no encoding is called {text!r}") from error
    return "utf-8-sig" if codecs.lookup(text).name == "utf-8" else text
