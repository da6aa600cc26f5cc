"""Text files, opened: decompressed (.gz, .zst, .bz2), decoded, and every fault located."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from datamodules.text_columns import Columns
from preprocessing.tables import MAX_CHARACTERS

COMPRESSIONS = (".gz", ".zst", ".bz2")
BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


@contextmanager
def explained(path: Path, columns: Columns) -> Iterator[None]:
    """Names the file of what cannot be read."""
    try:
        yield
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


def base_suffix(path: Path) -> str:
    """Suffix in lower case, without that of a compression."""
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return inner.suffix.lower()
