"""Formats proven before: what a record holds for, and when it does not."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from exporters import proven
from exporters.bundle import Stage, describe_files
from tests.exporters.small_manifest import make_bundle

REFERENCE = {"sha256": "ab"}
PASSED: dict[str, Any] = {"verdict": {"verdict": "passed", "reasons": []}, "files": {}}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "calibration.npz").write_bytes(b"samples")
    (tmp_path / "best.ckpt").write_bytes(b"weights")
    return tmp_path


def key(files: Path, reference: dict = REFERENCE) -> str | None:
    return proven.key_of(files / "best.ckpt", files, reference)


def test_the_key_changes_with_everything_that_a_proof_depends_on(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key(files), key(files, {"sha256": "cd"})]
    (files / "calibration.npz").write_bytes(b"other samples")
    keys.append(key(files))
    (files / "best.ckpt").write_bytes(b"other weights")
    keys.append(key(files))
    monkeypatch.setattr(proven, "library_versions", lambda names: {})
    keys.append(key(files))
    hashes = proven.sha256_of
    other = lambda path: hashes(path) + (".py" if path.suffix == ".py" else "")  # noqa: E731
    monkeypatch.setattr(proven, "sha256_of", other)  # as if the exporters' code had changed
    keys.append(key(files))
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert key(files) == key(files)


def test_nothing_is_proven_without_samples(files: Path) -> None:
    assert key(files, {}) is None
    proven.remember(files, None, "onnx", PASSED)
    assert proven.recall(files, None, "onnx") is None


def test_only_under_the_same_key_and_only_what_passed(files: Path) -> None:
    proven.remember(files, "k", "onnx", PASSED)
    proven.remember(files, "k", "torchscript", PASSED)
    assert proven.recall(files, "k", "onnx") == PASSED
    assert proven.recall(files, "l", "onnx") is None
    assert proven.recall(files, "k", "pt2") is None
    proven.remember(files, "k 20", "pt2", PASSED)
    assert proven.recall(files, "k", "pt2") is None
    assert proven.recall(files, "k ", "pt2", whole_key=False) == PASSED
    assert proven.recall(files, "l ", "pt2", whole_key=False) is None
    assert proven.recall(files, None, "pt2", whole_key=False) is None
    proven.remember(files, "k", "onnx", {"verdict": {"verdict": "failed", "reasons": []}})
    assert proven.recall(files, "k", "onnx") is None
    assert proven.recall(files, "k", "torchscript") == PASSED


@pytest.mark.parametrize("content", ["", "[1]", "{", "null", json.dumps("text")])
def test_a_damaged_record_counts_as_none(files: Path, content: str) -> None:
    (files / proven.RECORD).write_text(content)
    assert proven.recall(files, "k", "onnx") is None


def test_files_come_from_the_bundle_or_from_what_an_interrupted_export_left(
    tmp_path: Path,
) -> None:
    bundle = make_bundle(tmp_path / "export")
    hashed = describe_files(bundle, "model.onnx")
    files = {"model.onnx": hashed["model.onnx"]}
    stage = Stage(bundle)
    assert stage.recover("onnx", files)
    assert (stage.candidate("onnx") / "model.onnx").read_bytes() == b"model"
    (stage.folder / "README.md").write_text("half done")
    shutil.rmtree(bundle)  # killed here: only the candidates are kept
    stage = Stage(bundle)
    assert {path.name for path in stage.folder.iterdir()} == {"candidates", ".unfinished"}
    assert stage.recover("onnx", files)
    (stage.candidate("onnx") / "model.onnx").write_bytes(b"other")
    assert not stage.recover("onnx", files)
    stage.clear("onnx")
    assert not stage.candidate("onnx").exists()
