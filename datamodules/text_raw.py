"""The rows of one split as packed arrays, the text itself in a file: ten million rows fit."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from datamodules.label_spelling import visible
from datamodules.text_columns import Columns
from datamodules.text_readers import Label, TextSource

ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class RawTexts:
    """spool: a file with the texts in UTF-8; offsets: int64 [M+1]; labels: int32 [M], index of
    `label_names`; hashes: S16 [M] of the text; file_numbers: int32 [M]; lines: int64 [M];
    written: rows by label as it stands in the files."""

    source: TextSource
    spool: Path
    offsets: np.ndarray
    labels: np.ndarray
    label_names: list[str]
    hashes: np.ndarray
    file_numbers: np.ndarray
    lines: np.ndarray
    written: list[tuple[Label, int]]

    @property
    def label_counts(self) -> dict[str, int]:
        """Rows by label."""
        counts = np.bincount(self.labels, minlength=len(self.label_names))
        return dict(zip(self.label_names, counts.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.labels)

    def texts(self, rows: np.ndarray) -> Iterator[str]:
        """Read, not mapped: of a mapped file all that was touched counts as memory."""
        with self.spool.open("rb") as file:
            for start in range(0, len(rows), ROWS_AT_ONCE):
                some = rows[start : start + ROWS_AT_ONCE]
                first, last = self.offsets[some], self.offsets[some + 1]
                for position, size in zip(first.tolist(), (last - first).tolist(), strict=True):
                    file.seek(position)
                    yield file.read(size).decode()

    def location(self, row: int) -> str:
        """File and line of a row, for messages."""
        path = self.source.files[self.file_numbers[row]]
        return f"{path}:{self.lines[row]}"


def read_raw(source: TextSource, columns: Columns, spool: Path) -> RawTexts:
    """Reads all rows; their text goes to the file `spool`.

    Raises:
        ValueError: There is no row, or all texts are empty.
    """
    lengths, labels, file_numbers, lines = array("q"), array("i"), array("i"), array("q")
    hashes = bytearray()
    codes: dict[tuple[type, Label], int] = {}  # 1, 1.0 and True are one key without their type
    with spool.open("wb") as file:
        for text, label, file_number, line in source.rows(columns):
            data = text.encode("utf-8", "replace")  # JSON can hold half a surrogate pair
            file.write(data)
            # texts that differ in white space only are the same text
            hashes += blake2b(b" ".join(data.split()), digest_size=16).digest()
            lengths.append(len(data))
            labels.append(codes.setdefault((label.__class__, label), len(codes)))
            file_numbers.append(file_number)
            lines.append(line)
    where = ", ".join(map(str, source.files[:3])) + (" …" if len(source.files) > 3 else "")
    if not lengths:
        raise ValueError(f"{where}: no rows")
    if not any(lengths):
        raise ValueError(f"{where}: all {len(lengths)} texts are empty")
    written = [label for _, label in codes]
    names = [visible(str(label)) for label in written]
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    codes_of_rows = np.frombuffer(labels, np.int32)
    counts = np.bincount(codes_of_rows).tolist()
    return RawTexts(
        source,
        spool,
        np.concatenate([[0], np.cumsum(np.frombuffer(lengths, np.int64))]),
        np.array([places[name] for name in names], np.int32)[codes_of_rows],
        list(places),
        np.frombuffer(hashes, "S16"),
        np.frombuffer(file_numbers, np.int32),
        np.frombuffer(lines, np.int64),
        list(zip(written, counts, strict=True)),
    )
