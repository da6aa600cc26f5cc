"""Which files a model takes and how they become its inputs, for images and texts.

N batch.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from preprocessing.sources import MAX_CHARACTERS

TEXT_EXTENSIONS = (".txt",)
TOKENIZER = "tokenizer.json"  # the only file that a model brings along, and only one of texts
STRAY_BYTE = re.compile("[\udc80-\udcff]")  # what surrogateescape makes of it


@dataclass(frozen=True)
class Reader:
    """How samples become a model's inputs."""

    kind: str  # "image" or "text"
    extensions: tuple[str, ...]  # of what is taken from folders
    read: Callable[[str | Path], Any]
    collate: Callable[[list[Any]], dict[str, np.ndarray]]
    counts: Counter[str] = field(default_factory=Counter)  # of what was odd though it was answered


def check_files(kind: str, files: Mapping[str, object]) -> None:
    """Refuses what comes with a model beside its tokenizer: in a bundle it could be code that runs.

    Raises:
        ValueError: Names that no model of this kind needs, or the tokenizer is missing.
    """
    needed = {TOKENIZER} if kind == "text" else set()
    if foreign := [name for name in files if name not in needed]:
        raise ValueError(f"brings files that no model needs: {', '.join(map(repr, foreign))}")
    if any(not isinstance(files.get(name), str) for name in needed):
        raise ValueError(f"lacks its {TOKENIZER}, which a model of texts needs")


def make_reader(preprocessing: Mapping[str, Any], read_text: Callable[[str], str]) -> Reader:
    """The reader for images or texts.

    Args:
        preprocessing: As in the manifest.
        read_text: Content of a file that preprocessing needs, by its name.
    """
    counts: Counter[str] = Counter()
    if preprocessing["kind"] == "text":
        from preprocessing.text import TextTokenizer, text_inputs

        tokenizer = TextTokenizer(read_text(preprocessing["tokenizer"]))
        return Reader(
            "text",
            TEXT_EXTENSIONS,
            text_of,
            lambda texts: text_inputs(texts, tokenizer, preprocessing, counts),
            counts,
        )
    from preprocessing.images import EXTENSIONS, decode_image

    return Reader(
        "image",
        EXTENSIONS,
        lambda path: decode_image(path, preprocessing, counts),
        lambda images: {"images": np.stack(images)},
        counts,
    )


def text_of(source: str | Path) -> str:
    """A text, or the one that a file holds: UTF-8 with or without a byte order mark.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no text.
    """
    text = source
    if isinstance(source, Path):
        if not os.path.isfile(source):
            is_folder = os.path.isdir(source)
            missing = "no such file (addresses are never fetched)"
            raise FileNotFoundError("a folder" if is_folder else missing)
        with open(source, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            text = file.read(MAX_CHARACTERS + 1)
    assert isinstance(text, str)
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"more than {MAX_CHARACTERS:,} characters")
    if "\0" in text:
        raise ValueError("a NUL byte: not a text")
    if not text.isascii() and (stray := STRAY_BYTE.search(text)):
        raise ValueError(f"not UTF-8 (byte 0x{ord(stray[0]) - 0xDC00:02x})")
    return text
