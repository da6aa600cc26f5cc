"""The rows of one split as packed arrays, the text itself in a file: ten million rows fit."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from datamodules.text_readers import Columns, TextSource


@dataclass(frozen=True)
class RawTexts:
    """content: uint8 [bytes], UTF-8, memory-mapped; offsets: int64 [M+1]; labels: int32 [M], index
    of `label_names`; hashes: uint64 [M] of the text; file_numbers: int32 [M]; lines: int64 [M]."""

    source: TextSource
    content: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray
    label_names: list[str]
    hashes: np.ndarray
    file_numbers: np.ndarray
    lines: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def texts(self, rows: np.ndarray) -> Iterator[str]:
        for row in rows:
            yield bytes(self.content[self.offsets[row] : self.offsets[row + 1]]).decode()

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
    codes: dict[str, int] = {}
    with spool.open("wb") as file:
        for text, label, file_number, line in source.rows(columns):
            data = text.encode("utf-8", "replace")  # JSON can hold half a surrogate pair
            file.write(data)
            # texts that differ in white space only are the same text
            hashes += blake2b(b" ".join(data.split()), digest_size=8).digest()
            lengths.append(len(data))
            labels.append(codes.setdefault(label.strip(), len(codes)))
            file_numbers.append(file_number)
            lines.append(line)
    where = ", ".join(map(str, source.files[:3])) + (" …" if len(source.files) > 3 else "")
    if not lengths:
        raise ValueError(f"{where}: no rows")
    if not any(lengths):
        raise ValueError(f"{where}: all {len(lengths)} texts are empty")
    return RawTexts(
        source,
        np.memmap(spool, np.uint8, "r"),
        np.concatenate([[0], np.cumsum(np.frombuffer(lengths, np.int64))]),
        np.frombuffer(labels, np.int32),
        list(codes),
        np.frombuffer(bytes(hashes), np.uint64),
        np.frombuffer(file_numbers, np.int32),
        np.frombuffer(lines, np.int64),
    )
