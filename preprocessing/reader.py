"""Which files a model takes and how they become its inputs, for images and texts.

N batch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TEXT_EXTENSIONS = (".txt",)


@dataclass(frozen=True)
class Reader:
    """How files become a model's inputs."""

    extensions: tuple[str, ...]  # of what is taken from folders
    read: Callable[[Path], Any]
    collate: Callable[[list[Any]], dict[str, np.ndarray]]


def make_reader(preprocessing: Mapping[str, Any], read_text: Callable[[str], str]) -> Reader:
    """The reader for images or texts.

    Args:
        preprocessing: As in the manifest.
        read_text: Content of a file that preprocessing needs, by its name.
    """
    if preprocessing["kind"] == "text":
        from preprocessing.text import TextTokenizer, text_inputs

        tokenizer = TextTokenizer(read_text(preprocessing["tokenizer"]))
        return Reader(
            TEXT_EXTENSIONS, read_text_file, lambda t: text_inputs(t, tokenizer, preprocessing)
        )
    from preprocessing.images import EXTENSIONS, decode_image

    return Reader(
        EXTENSIONS,
        lambda path: decode_image(path, preprocessing),
        lambda images: {"images": np.stack(images)},
    )


def read_text_file(path: Path) -> str:
    """One text a file, UTF-8 with or without a byte order mark."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file (addresses are never fetched)")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 (byte {error.start})") from error


def find_files(names: Sequence[str], extensions: tuple[str, ...]) -> Iterator[Path]:
    """Files as they are named; of a folder, all with a fitting extension, sorted."""
    for name in names:
        path = Path(name)
        if not path.is_dir():
            yield path
            continue
        inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in extensions)
        if not inside:
            raise ValueError(f"{path}: no files with {', '.join(extensions)} in this folder")
        yield from inside
