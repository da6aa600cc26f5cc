"""Which files a model takes and how they become its inputs, as its preprocessing says by "kind":
pictures ("image"), boxes in pictures, which a table names ("region"), texts ("text"), or files that
hold the inputs themselves ("arrays").

N batch.
"""

import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from preprocessing.sources import MAX_CHARACTERS

TEXT_EXTENSIONS = (".txt",)
ARRAY_EXTENSIONS = (".npz",)
ONE_SAMPLE = "a file is one sample, without the axis of the batch"
# what of this package reads each kind
PARTS = {
    "image": ("images.py",),
    "region": ("images.py", "regions.py"),
    "text": ("text*.py",),
    "arrays": ("inputs.py",),
}
TOKENIZER = "tokenizer.json"  # the only file that a model brings along, and only one of texts
STRAY_BYTE = re.compile("[\udc80-\udcff]")  # what surrogateescape makes of it


@dataclass(frozen=True)
class Reader:
    """How samples become a model's inputs."""

    takes_text: bool  # a line or a cell is a sample itself; else it names a file
    extensions: tuple[str, ...]  # of what is taken from folders
    read: Callable[..., Any]  # of a text or path, and the cells of `columns`
    collate: Callable[[list[Any]], dict[str, np.ndarray]]
    counts: Counter[str] = field(default_factory=Counter)  # of what was odd though it was answered
    columns: tuple[str, ...] = ()  # of a table, which a sample needs beside its file


def check_preprocessing(preprocessing: Mapping[str, Any], files: Mapping[str, object]) -> None:
    """Refuses what is no preprocessing, and what comes with a model beside its tokenizer: in a
    bundle it could be code that runs.

    Raises:
        ValueError: An unknown kind, names that no model of this kind needs, or the tokenizer is
            missing, or another one is named.
    """
    kind = preprocessing.get("kind")
    if kind not in PARTS:
        raise ValueError(f"has preprocessing of kind {kind!r}, not one of {', '.join(PARTS)}")
    if kind == "region":
        columns = preprocessing.get("boxes")
        if (
            not isinstance(columns, list)
            or len(columns) != 4
            or not all(isinstance(name, str) for name in columns)
        ):
            raise ValueError(f"names the columns of a box {columns!r}, expected four texts")
    needed = {TOKENIZER} if kind == "text" else set()
    if foreign := [name for name in files if name not in needed]:
        raise ValueError(f"brings files that no model needs: {', '.join(map(repr, foreign))}")
    if any(not isinstance(files.get(name), str) for name in needed):
        raise ValueError(f"lacks its {TOKENIZER}, which a model of texts needs")
    if kind == "text" and (found := preprocessing.get("tokenizer")) != TOKENIZER:
        raise ValueError(f"names another tokenizer: {found!r}, not {TOKENIZER!r}")


def make_reader(preprocessing: Mapping[str, Any], read_text: Callable[[str], str]) -> Reader:
    """The reader for a model's preprocessing.

    Args:
        preprocessing: As in the manifest.
        read_text: Content of a file that preprocessing needs, by its name.
    """
    if preprocessing["kind"] == "text":
        return text_reader(preprocessing, read_text(preprocessing["tokenizer"]))
    make = {"arrays": array_reader, "region": region_reader, "image": image_reader}
    return make[preprocessing["kind"]](preprocessing)


def text_reader(preprocessing: Mapping[str, Any], tokenizer_file: str) -> Reader:
    from preprocessing.text import TextTokenizer, text_inputs

    tokenizer, counts = TextTokenizer(tokenizer_file), Counter[str]()

    def collate(texts: list[Any]) -> dict[str, np.ndarray]:
        return text_inputs(texts, tokenizer, preprocessing, counts)

    return Reader(True, TEXT_EXTENSIONS, text_of, collate, counts)


def array_reader(preprocessing: Mapping[str, Any]) -> Reader:
    from preprocessing.inputs import InputsSpec, padded_stack

    spec = InputsSpec.from_json(preprocessing)

    def collate(samples: list[Any]) -> dict[str, np.ndarray]:
        return {name: padded_stack([sample[name] for sample in samples]) for name in spec.names}

    return Reader(False, ARRAY_EXTENSIONS, lambda path: arrays_of(path, spec), collate)


def region_reader(preprocessing: Mapping[str, Any]) -> Reader:
    from preprocessing.images import EXTENSIONS
    from preprocessing.regions import decode_region

    counts = Counter[str]()

    def read(path: Path, *box: str) -> dict[str, np.ndarray]:
        return decode_region(path, box, preprocessing, counts)

    def collate(samples: list[Any]) -> dict[str, np.ndarray]:
        names = ("images", "boxes")
        return {name: np.stack([sample[name] for sample in samples]) for name in names}

    return Reader(False, EXTENSIONS, read, collate, counts, tuple(preprocessing["boxes"]))


def image_reader(preprocessing: Mapping[str, Any]) -> Reader:
    from preprocessing.images import EXTENSIONS, decode_image

    counts = Counter[str]()

    def read(path: Path) -> np.ndarray:
        return decode_image(path, preprocessing, counts)

    return Reader(False, EXTENSIONS, read, lambda images: {"images": np.stack(images)}, counts)


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


def arrays_of(path: str | Path, spec: Any) -> dict[str, np.ndarray]:
    """The inputs of one sample by name, without an axis for the batch, from an .npz file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It holds something else than `spec`, an `InputsSpec`, says.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError("no such file (addresses are never fetched)")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in spec.names if name in file}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise ValueError(f"no .npz file of arrays: {error}") from error
    spec.check_arrays({name: array[None] for name, array in arrays.items()}, ONE_SAMPLE)
    return arrays
