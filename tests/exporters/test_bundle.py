"""The bundle's folder: staged, hashed, swapped in whole; and what its reader refuses."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from exporters.bundle import Stage, describe_files, write_atomically
from exporters.bundle_files import choose_artifact, read_manifest
from tests.exporters.small_manifest import artifact, make_bundle, manifest_values


def test_a_bundle_appears_whole(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export")
    manifest = read_manifest(bundle)
    assert set(manifest["files"]) == {
        "README.md", "exporters/__init__.py", "exporters/answers.py", "exporters/bundle_files.py",
        "exporters/command_line.py", "exporters/manifest.schema.json", "model.onnx",
        "predict.py", "preprocessing/__init__.py",
        "preprocessing/images.py", "preprocessing/reader.py", "preprocessing/sources.py",
        "preprocessing/table_flags.py", "preprocessing/tables.py", "tasks/__init__.py",
        "tasks/base.py", "tasks/outcomes.py", "tasks/single_label.py",
        "tasks/single_label_calibration.py", "tasks/single_label_metrics.py",
        "tasks/single_label_outcomes.py", "tasks/single_label_report.py",
    }  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_it_replaces_an_older_one_and_can_be_moved(tmp_path: Path) -> None:
    make_bundle(tmp_path / "export", b"old")
    make_bundle(tmp_path / "export", b"new")
    moved = (tmp_path / "export").rename(tmp_path / "elsewhere")
    read_manifest(moved)
    assert (moved / "model.onnx").read_bytes() == b"new"


def test_an_export_that_breaks_leaves_the_old_bundle(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export", b"old")
    stage = Stage(bundle)
    (stage.folder / "model.onnx").write_bytes(b"half")
    stage.discard()
    read_manifest(bundle)
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_an_export_in_which_nothing_passed_leaves_the_old_bundle(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export", b"old")
    failed = {"onnx": artifact(None, verdict="failed", reasons=["wrong"], parity=None)}

    def again() -> Path:
        stage = Stage(bundle)
        stage.add_runtime({"kind": "image"}, {})
        return stage.finish(manifest_values(artifacts=failed))

    assert again() == again() == tmp_path / "export.failed"
    assert (bundle / "model.onnx").read_bytes() == b"old"
    read_manifest(bundle)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "export.failed"]


@pytest.mark.parametrize(
    "name", ["model.onnx", "predict.py", "preprocessing/images.py", "manifest.json", "README.md"]
)
def test_one_changed_byte_is_one_error(tmp_path: Path, name: str) -> None:
    path = make_bundle(tmp_path / "export") / name
    content = bytearray(path.read_bytes())
    position = content.index(b"model") if b"model" in content else len(content) // 2
    content[position] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=f"{Path(name).name} was changed after the export"):
        read_manifest(tmp_path / "export")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export")
    (bundle / "model.onnx").unlink()
    with pytest.raises(ValueError, match=r"model\.onnx is missing from the bundle"):
        read_manifest(bundle)


def test_rejected_files_keep_their_reason_and_no_final_name(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "export")
    folder = stage.candidate("onnx-int8")
    folder.mkdir()
    (folder / "model.int8.onnx").write_bytes(b"bad")
    stage.reject("onnx-int8", ["accuracy falls by 3.00 points"], "the last lines of the log")
    stage.reject("torchscript", ["the process was ended by SIGSEGV"], "")
    stage.finish(manifest_values())
    rejected = tmp_path / "export" / "rejected"
    assert "falls by 3.00 points" in (rejected / "onnx-int8" / "reason.txt").read_text()
    assert (rejected / "onnx-int8" / "model.int8.onnx").read_bytes() == b"bad"
    assert "SIGSEGV" in (rejected / "torchscript" / "reason.txt").read_text()
    assert set(read_manifest(tmp_path / "export")["files"]) == {"README.md"}


def test_a_candidate_that_changed_after_its_proof_is_not_released(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "export")
    folder = stage.candidate("onnx")
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"a")
    files = describe_files(folder, "model.onnx")
    (folder / "model.onnx").write_bytes(b"b")
    with pytest.raises(ValueError, match="changed between its proof and its release"):
        stage.accept("onnx", files)


def test_a_write_that_breaks_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with suppress(RuntimeError), write_atomically(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(os.name == "nt", reason="there the system itself refuses")
def test_only_files_opened_to_write_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows syncs no other; folders are synced only where there is no Windows."""
    import fcntl

    synced = []

    def refuse_readers(descriptor: int) -> None:
        kind = os.fstat(descriptor).st_mode
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        synced.append(stat.S_ISREG(kind))
        if stat.S_ISREG(kind) and mode == os.O_RDONLY:
            raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(os, "fsync", refuse_readers)
    bundle = make_bundle(tmp_path / "export")
    assert synced.count(True) == len(read_manifest(bundle)["files"]) + 1


def entry(file: str | None, runtime: str, verdict: str = "passed") -> dict[str, Any]:
    return {"file": file, "runtime": runtime, "verdict": verdict, "reasons": ["a reason"]}


ARTIFACTS = {
    "torchscript": entry("model.pt", "torch"),
    "onnx": entry("model.onnx", "onnxruntime"),
    "onnx-int8": entry(None, "onnxruntime", "failed"),
}


@pytest.mark.parametrize(
    ("name", "recommended", "chosen"),
    [(None, "onnx", "onnx"), (None, None, "onnx"), ("onnx", "torchscript", "onnx")],
)
def test_the_artifact(name: str | None, recommended: str | None, chosen: str) -> None:
    assert choose_artifact({"artifacts": ARTIFACTS, "recommended": recommended}, name) == chosen


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torchscript", "needs PyTorch, .*choose --artifact onnx"),
        ("onnx-int8", r"no artifact onnx-int8 here \(failed: a reason\); it has torchscript"),
        ("coreml", "no artifact coreml here; it has torchscript, onnx"),
    ],
)
def test_artifacts_that_cannot_be_run(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_artifact({"artifacts": ARTIFACTS, "recommended": "onnx"}, name)
