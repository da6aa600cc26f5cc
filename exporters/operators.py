"""Operators that are not torch's own: which a model has, and what a file of it needs for them.

What torch runs (TorchScript, .pt2, AOTInductor) calls such an operator by its name, so the compiled
library that defines it is put beside the file, and loaded before it. That runs code from the
library. ONNX has no such calls: an operator is translated, by a table {torch operator: function}.
"""

import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from exporters.bundle_files import sha256_of

# whose operators come with torch
TORCHS = ("_c10d_functional", "_quantized", "aten", "c10d", "higher_order", "inductor", "mkldnn",
          "onednn", "prim", "prims", "profiler", "quantized", "quantized_decomposed")  # fmt: skip
TORCHVISION = "torchvision"  # which torch.onnx knows in part, and says so itself
VERSION = re.compile("-[0-9a-f]{12}$")
LIBRARIES = (".so", ".dll", ".dylib")

# names such as "mine::operator" -> {torch operator: function of onnxscript}
Translations = Callable[[Collection[str]], Mapping[Any, Any]]


def is_foreign(name: str) -> bool:
    """Whether an operator, such as "mine::operator", is not one of torch's."""
    return name.partition("::")[0] not in TORCHS


def is_library(path: str | Path) -> bool:
    return Path(path).suffix.lower() in LIBRARIES


def library_of(operator: str) -> Path | None:
    """The loaded library that defines an operator; None where it was defined in Python."""
    words = [word.encode() for word in operator.split("::")]
    for path in sorted(map(Path, torch.ops.loaded_libraries)):
        if path.is_file():
            content = path.read_bytes()
            if all(word in content for word in words):
                return path
    return None


def facts_of(operators: Collection[str], translations: Translations | None) -> dict[str, list[str]]:
    """What no format of torch's, and what no ONNX file can hold; SHA-256 of what files need."""
    foreign = sorted(filter(is_foreign, operators))
    known = {str(key).rpartition(".")[0] for key in (translations(foreign) if translations else ())}
    names = [name for name in foreign if not name.startswith(f"{TORCHVISION}::")]
    found = {name: library_of(name) for name in foreign}
    return {
        "libraries": sorted({sha256_of(path) for path in found.values() if path is not None}),
        "without_library": [name for name, path in found.items() if path is None],
        "untranslated": [name for name in names if name.replace("::", ".") not in known],
    }


def lacks_library(description: Mapping[str, Any]) -> str | None:
    """Why a model cannot leave this process in a file of torch's."""
    names = description.get("probe", {}).get("without_library")
    if not names:
        return None
    return (
        f"calls {', '.join(names)}, which no compiled library defines here (one that "
        "torch.ops.load_library has loaded), so nothing else could load the file"
    )


def lacks_translation(description: Mapping[str, Any]) -> str | None:
    """Why a model cannot become an ONNX file."""
    names = description.get("probe", {}).get("untranslated")
    if not names:
        return None
    return (
        f"the exporter does not know {', '.join(names)}: name a table of translations by "
        "onnx_translations, as the README shows"
    )


def add_libraries(operators: Collection[str], folder: Path) -> list[str]:
    """Copies what defines the operators into a folder, under names that tell versions apart."""
    found = {library_of(operator) for operator in operators if is_foreign(operator)}
    names = []
    for library in sorted(path for path in found if path is not None):
        name = f"{library.stem}-{sha256_of(library)[:12]}{library.suffix}"
        shutil.copyfile(library, folder / name)
        names.append(name)
    return names


def own_name(path: Path) -> str:
    """What a library is called without the mark of its version."""
    return VERSION.sub("", path.stem)


def libraries_beside(path: Path) -> list[Path]:
    """Those in the folder of a candidate, which holds the files of one format alone."""
    return sorted(other for other in path.parent.iterdir() if is_library(other))


def load_libraries(paths: Sequence[Path]) -> None:
    """Loads each, but none twice; runs code from it.

    Raises:
        ValueError: One does not load, as one that was made for another torch, or another version of
            it is there: torch would end the process.
    """
    for path in paths:
        loaded = [Path(other) for other in torch.ops.loaded_libraries if os.path.isfile(other)]
        if sha256_of(path) in map(sha256_of, loaded):
            continue
        if own_name(path) in map(own_name, loaded):
            raise ValueError(f"another version of {own_name(path)} is loaded already: {path.name}")
        try:
            torch.ops.load_library(path)
        except (OSError, RuntimeError) as error:
            line = str(error).strip().splitlines()[0]
            raise ValueError(f"the library {path.name} does not load: {line}") from error
