"""What a checkpoint keeps about where it comes from."""

from pathlib import Path

import pytest

from cli.provenance import findable


def test_data_that_is_there_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("words.txt", "char", "digits"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    data = {"name": "digits", "root": "mine", "vocab": "words.txt", "tokenizer": "char"}
    data |= {"vectors": None, "cache_dir": "none", "batch_size": 3}
    found = findable({"data": data, "seed": 1})
    place = {"root": str(tmp_path / "mine"), "vocab": str(tmp_path / "words.txt")}
    assert found == {"data": data | place, "seed": 1}
    assert findable(found) == found
