"""Operators that are not torch's own: found, judged, and their libraries moved and loaded."""

from pathlib import Path
from typing import Any

import pytest
import torch

from exporters import operators
from exporters.bundle_files import sha256_of
from exporters.operators import (
    add_libraries,
    facts_of,
    is_foreign,
    lacks_library,
    lacks_translation,
    library_of,
    load_libraries,
)

CUBE = "mine::cube"


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that stands for a library, which torch thinks it has loaded."""
    path = tmp_path / "libmine.so"
    path.write_bytes(b"\x7fELF mine\0cube(Tensor x) -> Tensor\0")
    monkeypatch.setattr(torch.ops, "loaded_libraries", {str(path), "/not/there.so"})
    return path


def test_torch_s_own_operators_are_none() -> None:
    assert [*map(is_foreign, ["aten::relu", "prims::add", CUBE])] == [False, False, True]


def test_a_library_is_known_by_what_it_defines(loaded: Path) -> None:
    assert library_of(CUBE) == loaded
    assert library_of("mine::square") is None
    assert library_of("others::cube") is None


def test_what_formats_lack_is_said(loaded: Path) -> None:
    names = ["aten::relu", CUBE, "mine::square", "torchvision::nms"]

    class Cube:
        def __str__(self) -> str:
            return "mine.cube.default"

    def table(asked: Any) -> dict[Any, Any]:
        assert asked == [CUBE, "mine::square", "torchvision::nms"]
        return {Cube(): print}

    found = facts_of(names, table)
    assert found == {
        "libraries": [sha256_of(loaded)],
        "without_library": ["mine::square", "torchvision::nms"],
        "untranslated": ["mine::square"],
    }
    description = {"probe": found}
    assert "calls mine::square, torchvision::nms, which no" in str(lacks_library(description))
    assert "does not know mine::square: name a table" in str(lacks_translation(description))
    for complete in ({"probe": {}}, {"probe": facts_of(["aten::relu"], None)}):
        assert lacks_library(complete) is lacks_translation(complete) is None


def test_a_library_goes_beside_the_file_under_the_name_of_its_bytes(
    loaded: Path, tmp_path: Path
) -> None:
    (tmp_path / "bundle").mkdir()
    (name,) = add_libraries(["aten::relu", CUBE], tmp_path / "bundle")
    copied = tmp_path / "bundle" / name
    assert copied.read_bytes() == loaded.read_bytes()
    loaded.write_bytes(loaded.read_bytes() + b"another version")
    assert add_libraries([CUBE], tmp_path / "bundle") != [name]


def test_none_is_loaded_twice(
    loaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(torch.ops, "load_library", asked.append)
    copied = tmp_path / "copied.so"
    copied.write_bytes(loaded.read_bytes())
    load_libraries([copied])
    assert asked == []
    copied.write_bytes(b"another")
    load_libraries([copied])
    assert asked == [copied]
    (tmp_path / "libmine-0123456789ab.so").write_bytes(b"another version")
    with pytest.raises(ValueError, match="another version of libmine is loaded already"):
        load_libraries([tmp_path / "libmine-0123456789ab.so"])


def test_what_is_no_library_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "no.so").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"the library no\.so does not load: ") as caught:
        load_libraries([tmp_path / "no.so"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.so", "A.SO", "b.dll", "c.dylib"])
def test_libraries_are_known_by_their_endings(name: str) -> None:
    assert operators.is_library(name)
    assert not operators.is_library(f"{name}.txt")
