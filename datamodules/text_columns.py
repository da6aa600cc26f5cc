"""Which columns of a table hold the text and the label, told by flags or found by their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from preprocessing.tables import (
    LABEL_NAMES,
    TEXT_NAMES,
    Declared,
    NoColumn,
    find_column,
    listed,
    shortened,
)


@dataclass(frozen=True)
class Columns:
    """How tables are read.

    text: Names, or numbers from 0, of the columns that are joined by a space; empty finds one by
        its name. label: Name or number; None finds it by its name. header: Whether the first row
        holds names; None looks whether it does. quoted: Whether quotes enclose cells; None says
        yes for CSV and no for TSV. encoding_errors: "strict", or "replace" for stray bytes.
        separator: What divides cells; None looks.
    """

    text: tuple[str | int, ...] = ()
    label: str | int | None = None
    header: bool | None = None
    quoted: bool | None = None
    encoding: str = "auto"
    encoding_errors: str = "strict"
    separator: str | None = None

    @property
    def wanted(self) -> list[str | int]:
        return [*self.text, *([] if self.label is None else [self.label])]

    @property
    def declared(self) -> Declared:
        return Declared(self.separator, self.quoted, self.header)


@dataclass(frozen=True)
class ChosenColumns:
    """Places of the text's columns and of the label's in one table."""

    text: list[int]
    label: int
    first: list[str]  # the first row, or the names
    has_header: bool
    found: tuple[str, ...] = ()  # what was decided by a look at the rows

    def __str__(self) -> str:
        """One line for the user."""
        unused = [n for n in range(len(self.first)) if n not in (*self.text, self.label)]
        parts = [
            f"text from {self.named(self.text)}, label from {self.named([self.label])}",
            *([f"not used: {self.named(unused)}"] if unused else []),
            *self.found,
        ]
        return "; ".join(parts)

    def named(self, places: Sequence[int]) -> str:
        if not self.has_header:
            return ("column " if len(places) == 1 else "columns ") + ", ".join(map(str, places))
        names = [f"{n} ({shortened(self.first[n]) or 'no name'})" for n in places[:20]]
        more = f" and {len(places) - 20} more" if len(places) > 20 else ""
        return ", ".join(names) + more


class NoLabelColumn(ValueError):
    """A table that has the text only."""


def choose_columns(
    path: Path,
    first: list[str],
    has_header: bool,
    columns: Columns,
    found: tuple[str, ...] = (),
) -> ChosenColumns:
    """Finds the columns of the text and of the label.

    Args:
        path: For messages.
        first: The first row.
        has_header: Whether it holds the columns' names.
        columns: What is asked for.
        found: What was decided by a look at the rows.

    Raises:
        NoLabelColumn: Only the text is there.
        ValueError: A column is missing, cannot be told from the names, or is asked for twice.
    """
    advice = "name them by --data.text_columns and --data.label_column"
    if len(first) < 2:
        advice = "text and label are needed: --data.separator says what divides them"
    names = [name.strip().lower() if has_header else "" for name in first]
    try:
        text = [find_column(name, first, has_header) for name in columns.text]
        text = text or usual_column(TEXT_NAMES, names, ())
        if not text:
            raise NoColumn(f"no column is told to hold the text; its columns are {listed(first)}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}; {advice}") from error
    try:
        if columns.label is None:
            label = usual_column(LABEL_NAMES, names, text)
        else:
            label = [find_column(columns.label, first, has_header)]
        if not label:
            raise NoColumn(f"no column is told to hold the label; its columns are {listed(first)}")
        if text == label or len({*text}) < len(text):
            raise ValueError(f"a column is asked for twice, as text {text} and label {label}")
    except ValueError as error:
        kind = NoLabelColumn if isinstance(error, NoColumn) else ValueError
        raise kind(f"{path}: {error}; {advice}") from error
    told = ("the text holds the label",) if label[0] in text else ()
    return ChosenColumns(text, label[0], first, has_header, (*told, *found))


def usual_column(usual: Sequence[str], names: Sequence[str], taken: Sequence[int]) -> list[int]:
    """The place of the first of the usual names that is there; empty where none is.

    Raises:
        ValueError: It is there twice.
    """
    free = [name if place not in taken else "" for place, name in enumerate(names)]
    found = next((name for name in usual if name in free), None)
    return [] if found is None else [find_column(found, free, has_header=True)]
