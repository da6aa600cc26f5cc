"""How a table is laid out: what divides its cells, and whether its first row names its columns.

Training and predict.py follow the same rules. A number is a place, counted from 0. A first row
holds names where that is declared, by a flag or by a column that is called as a cell of it, or
where it cannot be data. Cells are divided by what the file's name says, unless the rows fit
another separator only. Whatever was found, and not declared, is said.
"""

import csv
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

MAX_CHARACTERS = 1 << 24  # of one cell; more is a damaged file
SEPARATORS = ("\t", ";", ",", "|")
SPOKEN = {"\t": "tabs"}
TEXT_NAMES = ("text", "sentence", "review", "content", "document", "title", "question")
LABEL_NAMES = ("label", "class", "target", "category", "sentiment", "y")
NOTHING = ("nan", "null", "none", "na", "n/a")
NUM_LINES, NUM_CHARACTERS = 500, 1 << 18  # of a file that are looked at
LONGEST_NAME = 40
FITTING_SHARE = 0.9  # of the rows: some may be damaged
FEW, OFTEN = 8, 4  # rows at least, and times each, that show which values a column has
NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)(e[+-]?\d{1,3})?", re.IGNORECASE)


class NoColumn(ValueError):
    """A column that is asked for and not there."""


@dataclass(frozen=True)
class TableForm:
    """first: the first row, whether it holds names or not. found: sentences on what was decided by
    a look at the rows."""

    separator: str
    quoted: bool
    has_header: bool
    first: list[str]
    found: tuple[str, ...] = ()


@dataclass(frozen=True)
class Declared:
    """What a user said of a table; None where nothing was said."""

    separator: str | None = None
    quoted: bool | None = None
    header: bool | None = None


def table_form(
    path: PurePath,
    lines: Sequence[str],
    wanted: Iterable[str | int],
    declared: Declared,
    flags: str = "--",
) -> TableForm:
    """Looks at the first lines of a table.

    Args:
        path: Its name says what usually divides its cells.
        lines: From `first_lines`.
        wanted: Names or numbers of the columns that are asked for.
        declared: What need not be found out.
        flags: How the flags begin that declare it, for `found`.
    """
    has_tabs = ".tsv" in path.name.lower()
    usual = "\t" if has_tabs else ","

    def is_quoted(divider: str) -> bool:
        # what is called a TSV takes quotes as text, if it is one
        is_tsv = has_tabs and divider == "\t"
        return not is_tsv if declared.quoted is None else declared.quoted

    found = []
    divider = declared.separator
    if divider is None:
        fitting = (d for d in (usual, *SEPARATORS) if fits(rows_of(lines, d, is_quoted(d))))
        divider = next(fitting, usual)
        if divider != usual:
            spoken = SPOKEN.get(divider, repr(divider))
            found.append(f"{spoken} between the cells ({flags}separator says otherwise)")
    rows = rows_of(lines, divider, is_quoted(divider))
    first = rows[0] if rows else []
    has_header = declared.header
    names = [str(name) for name in wanted if not is_number(name)]
    if has_header is None and any(places_of(name, first) for name in names):
        has_header = True
    elif has_header is None and first:
        has_header = holds_names(rows)
        taken = "column names" if has_header else "data, not column names"
        other = str(not has_header).lower()
        found.append(f"the first row is taken for {taken} ({flags}header {other} says otherwise)")
    return TableForm(divider, is_quoted(divider), bool(has_header), first, tuple(found))


def one_separator(text: str | None, flag: str) -> str | None:
    """A separator as it is given on the command line.

    Raises:
        ValueError: It is not a single character, or one that means something else.
    """
    separator = {"tab": "\t", "\\t": "\t"}.get(text or "", text)
    if separator is not None and (len(separator) != 1 or separator in '"\r\n\0'):
        raise ValueError(f"{flag} must be one character, as ';', or tab; got {text!r}")
    return separator


def first_lines(stream: Iterable[str]) -> list[str]:
    """What `table_form` looks at."""
    lines: list[str] = []
    size = 0
    for line in stream:
        lines.append(line)
        size += len(line)
        if len(lines) == NUM_LINES or size > NUM_CHARACTERS:
            break
    return lines


def rows_of(lines: Sequence[str], separator: str, quoted: bool) -> list[list[str]]:
    """Rows that are not blank, up to one that is damaged or goes on beyond the lines."""
    csv.field_size_limit(MAX_CHARACTERS)
    rows: list[list[str]] = []
    with suppress(csv.Error):  # said with its line when the row is read
        rows.extend(csv.reader(lines, delimiter=separator, quoting=quoting_of(quoted), strict=True))
    return [row for row in rows if row]


def quoting_of(quoted: bool) -> Literal[0, 3]:
    """The csv module's word for it."""
    return csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE


def fits(rows: Sequence[Sequence[str]]) -> bool:
    """Whether nearly all rows have as many columns as the first, and more than one."""
    width = len(rows[0]) if rows else 0
    return width > 1 and sum(len(row) == width for row in rows) >= FITTING_SHARE * len(rows)


def holds_names(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row cannot be data.

    It must look like names: short words, each once. And one column must show it: it holds numbers
    below; or a few values that come often, this one never; or this is a usual name, or one of
    several that are numbered (v1, v2), and does not come again.
    """
    first = [cell.strip() for cell in rows[0]]
    cells = [cell for cell in first if cell]
    lower = {cell.lower() for cell in cells}
    if lower & set(TEXT_NAMES) and lower & set(LABEL_NAMES):
        return True
    if not cells or len(lower) < len(cells) or not all(map(may_be_name, cells)):
        return False
    stems = Counter(stem for cell in cells if (stem := cell.rstrip("0123456789")) != cell)
    for place, name in enumerate(first):
        column = [row[place].strip() for row in rows[1:] if len(row) > place and row[place].strip()]
        values = set(column)
        if not name or name in values:
            continue
        is_usual = name.lower() in (*TEXT_NAMES, *LABEL_NAMES)
        is_one_of_several = stems[name.rstrip("0123456789")] > 1
        are_numbers = bool(values) and all(map(NUMBER.fullmatch, values))
        are_few = len(column) >= max(FEW, OFTEN * len(values))
        if is_usual or is_one_of_several or are_numbers or are_few:
            return True
    return False


def may_be_name(cell: str) -> bool:
    """Whether a cell could be the name of a column."""
    is_word = len(cell) <= LONGEST_NAME and "\n" not in cell and any(map(str.isalpha, cell))
    return is_word and not NUMBER.fullmatch(cell) and cell.lower() not in NOTHING


def is_number(wanted: str | int) -> bool:
    """Whether a column is asked for by its place."""
    return isinstance(wanted, int) or wanted.strip().isdecimal()


def places_of(name: str, first: Sequence[str]) -> list[int]:
    """Where a name stands; blanks around it and Unicode's forms of it do not count."""
    return [place for place, other in enumerate(first) if plain(other) == plain(name)]


def plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).strip()


def find_column(wanted: str | int, first: Sequence[str], has_header: bool) -> int:
    """The place of a column that is asked for by number or name.

    Raises:
        NoColumn: There is none.
        ValueError: There are two.
    """
    if is_number(wanted):
        if 0 <= int(wanted) < len(first):
            return int(wanted)
        raise NoColumn(f"no column {int(wanted)}; its columns are {listed(first)}")
    places = places_of(str(wanted), first) if has_header else []
    if not places:
        raise NoColumn(f"no column {wanted!r}; its columns are {listed(first)}")
    if len(places) > 1:
        numbers = " or ".join(map(str, places))
        raise ValueError(f"{len(places)} columns are called {wanted!r}; give a number: {numbers}")
    return places[0]


def listed(first: Sequence[str]) -> str:
    """Columns by number, each with its cell in the first row: `0 (text), 1 (label)`."""
    cells = [f"{n} ({shortened(cell)})" for n, cell in enumerate(first[:20])]
    return ", ".join(cells) + (f" and {len(first) - 20} more" if len(first) > 20 else "")


def shortened(cell: str) -> str:
    line = " ".join(cell[: 2 * LONGEST_NAME].split())
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1]}…"


def value_problem(name: str, value: object, label: bool = False) -> str | None:
    """Why a JSON value is no text, or no label; None where it is one."""
    is_finite = not isinstance(value, float) or math.isfinite(value)
    kinds = (str, int, float)
    if isinstance(value, kinds) and is_finite and (label or not isinstance(value, bool)):
        return None
    wanted = "one label: a text, a number, true or false" if label else "a text"
    return f"{name!r} holds {json.dumps(value, default=str)[:60]}, expected {wanted}"
