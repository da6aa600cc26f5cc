"""Where a bundle goes: what an exchange keeps, how it may be killed, and who may write."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporters import bundle_place
from exporters.bundle import Stage, describe_files
from exporters.bundle_files import read_manifest
from exporters.bundle_place import check_output, held, settle
from exporters.verdict import why_not_replace
from tests.exporters.small_manifest import artifact, make_bundle, manifest_values, rewrite

PROJECT = Path(bundle_place.__file__).parents[1]


def content_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*")
            if p.is_file()}  # fmt: skip


def add_own_files(folder: Path) -> dict[str, bytes]:
    """What a user may put into a bundle: beside the model, into our folders, an environment."""
    files = {
        "answers.csv": b"1",
        ".hidden": b"2",
        "exporters/notes.txt": b"3",
        "rejected/mine/thoughts.txt": b"4",
        "venv/bin/python": b"5",
        "venv/lib/site/x.py": b"6",
        "deep/er/still.txt": b"7",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "link").symlink_to(folder.parent / "nowhere")
    (folder / "empty").mkdir()
    return files


def has_own_files(folder: Path, files: dict[str, bytes]) -> None:
    found = content_of(folder)
    assert {name: found.get(name) for name in files} == files
    assert (folder / "link").is_symlink()
    assert (folder / "empty").is_dir()


def test_the_users_own_files_stay(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export", b"old")
    files = add_own_files(bundle)
    for content in (b"new", b"newer"):
        make_bundle(bundle, content)
        has_own_files(bundle, files)
        assert (bundle / "model.onnx").read_bytes() == content
        read_manifest(bundle)
        assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_what_the_older_manifest_names_goes(tmp_path: Path) -> None:
    """Another file of a model, its rejected formats, the caches beside its code."""
    stage = Stage(tmp_path / "export")
    stage.candidate("pt2").mkdir()
    (stage.candidate("pt2") / "model.pt2").write_bytes(b"old")
    stage.accept("pt2", describe_files(stage.candidate("pt2"), "model.pt2"))
    stage.reject("onnx-int8", ["too bad"], "")
    failed = artifact(None, verdict="failed", parity=None)
    artifacts = {"pt2": artifact("model.pt2"), "onnx-int8": failed}
    bundle = stage.finish(manifest_values(artifacts=artifacts, recommended="pt2"))
    (bundle / "__pycache__").mkdir()
    make_bundle(bundle, b"new")
    assert not {"model.pt2", "rejected", "__pycache__"} & {p.name for p in bundle.iterdir()}


def test_a_file_of_the_users_with_a_name_that_the_bundle_needs_is_kept(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export", b"old")
    for name in ("model.pt", "model.pt.kept"):
        (bundle / name).write_text(f"mine: {name}")
    stage = Stage(bundle)
    stage.candidate("torchscript").mkdir()
    (stage.candidate("torchscript") / "model.pt").write_bytes(b"script")
    stage.accept("torchscript", describe_files(stage.candidate("torchscript"), "model.pt"))
    stage.finish(manifest_values(artifacts={"torchscript": artifact("model.pt")}))
    assert stage.renamed == [bundle / "model.pt.kept-2"]
    assert (bundle / "model.pt").read_bytes() == b"script"
    assert (bundle / "model.pt.kept").read_text() == "mine: model.pt.kept"
    assert (bundle / "model.pt.kept-2").read_text() == "mine: model.pt"


def own_folders(output: Path) -> dict[str, bytes]:
    """Folders of the user's by the names that an export uses beside its bundle."""
    for suffix in ("old", "partial", "failed"):
        folder = output.with_name(f"{output.name}.{suffix}")
        (folder / "candidates").mkdir(parents=True)
        (folder / "thesis.tex").write_text("years of work")
    shutil.copytree(output, output.with_name(f"{output.name}.failed-2"))
    return content_of(output.parent)


def test_folders_of_the_users_beside_a_bundle_stay(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export", b"old")
    before = own_folders(bundle)
    failed = {"onnx": artifact(None, verdict="failed", reasons=["wrong"], parity=None)}
    for _ in range(2):
        stage = Stage(bundle)
        placed = stage.finish(manifest_values(artifacts=failed))
        assert placed.name == "export.failed-3"
    make_bundle(bundle, b"new")
    after = content_of(tmp_path)
    kept = {name: content for name, content in before.items() if not name.startswith("export/")}
    assert {name: after.get(name) for name in kept} == kept
    assert (bundle / "model.onnx").read_bytes() == b"new"


class Killed(BaseException):
    """Raised in place of an operation on files; nothing may tidy up after it."""


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The process ends at the n-th rename or removal: all that would follow does not happen."""
    count = 0

    def dying(original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count >= number:
                raise Killed
            return original(*arguments, **options)

        return operation

    for name in ("replace", "unlink", "rmdir"):
        monkeypatch.setattr(Path, name, dying(getattr(Path, name)))
    monkeypatch.setattr(shutil, "rmtree", dying(shutil.rmtree))


def test_killed_at_any_moment_there_is_a_whole_bundle_and_all_of_the_users_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # only the order matters here
    seen = set()
    for number in range(1, 60):
        bundle = make_bundle(tmp_path / str(number) / "export", b"old")
        files = add_own_files(bundle)
        with monkeypatch.context() as patch:
            kill_at(patch, number)
            try:
                make_bundle(bundle, b"new")
            except Killed:
                ended = False
            else:
                ended = True
        settle(bundle)  # as the next export does before anything else
        read_manifest(bundle)
        has_own_files(bundle, files)
        seen.add((bundle / "model.onnx").read_bytes())
        make_bundle(bundle, b"next")
        has_own_files(bundle, files)
        assert [path.name for path in bundle.parent.iterdir()] == ["export"]
        if ended:
            break
    assert ended
    assert seen == {b"old", b"new"}


def test_an_exchange_that_fails_leaves_the_older_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle(tmp_path / "export", b"old")
    rename = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if self.name == "export.partial":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        make_bundle(bundle, b"new")
    assert (bundle / "model.onnx").read_bytes() == b"old"
    read_manifest(bundle)


# ---- what is no bundle -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ('{"name": "My web site", "icons": []}', "is not the manifest of a bundle"),
        ("{", "is not the manifest of a bundle"),
        (None, "was changed after the export"),
        ({"files": {"../thesis.tex": {"sha256": "0" * 64, "bytes": 5}}}, "outside the bundle"),
        ({"artifacts": {"../../thesis": artifact(None)}}, "outside the bundle"),
    ],
)
def test_a_folder_whose_manifest_is_not_ours_is_refused(
    tmp_path: Path, manifest: Any, message: str
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    bundle = make_bundle(tmp_path / "export")
    if isinstance(manifest, dict):
        rewrite(bundle, **manifest)
    else:
        whole = json.loads((bundle / "manifest.json").read_text())
        (bundle / "manifest.json").write_text(manifest or json.dumps(whole | {"kind": "text"}))
    before = content_of(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        check_output(bundle, 0)
    assert "choose another --output" in str(caught.value)
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("what", ["file", "dangling link", "full folder"])
def test_a_place_that_is_taken_is_refused(tmp_path: Path, what: str) -> None:
    output = tmp_path / "export"
    if what == "file":
        output.write_text("mine")
    elif what == "full folder":
        (output / "inside").mkdir(parents=True)
    else:
        output.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="exists and is not a bundle"):
        check_output(output, 0)


def test_a_mounted_file_system_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_place.os.path, "ismount", lambda path: True)
    (tmp_path / "export").mkdir()
    with pytest.raises(ValueError, match="a mounted file system: choose a folder in it"):
        check_output(tmp_path / "export", 0)


@pytest.mark.parametrize("place", ["export", "."])
def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    bundle = make_bundle(tmp_path / "export")
    write, locked = Path.write_bytes, (tmp_path / place).resolve()

    def refuse(self: Path, content: bytes) -> int:
        if self.parent == locked:
            raise PermissionError(13, "Permission denied", str(self))
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(ValueError, match=f"cannot write to {locked}: Permission denied"):
        check_output(bundle, 0)


# ---- one export at a time --------------------------------------------------------------------


def test_a_second_export_is_refused_by_one_message(tmp_path: Path) -> None:
    output = tmp_path / "export"
    hold = "from exporters.bundle_place import held; from pathlib import Path; import sys\n"
    hold += "with held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, output],
        cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as first:  # fmt: skip
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match=f"another export is writing {output}"), held(output):
            pytest.fail("was let in")
        with held(tmp_path / "other"):
            pass
        first.kill()  # a killed one holds nothing
    with held(output):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_its_holder_has_just_removed_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was opened before its holder removed it, and locked after."""
    path, lock, calls = tmp_path / ".export.lock", bundle_place.lock, []

    def late(descriptor: int) -> bool:
        calls.append(descriptor)
        if len(calls) == 1:
            path.unlink()
        return lock(descriptor)

    monkeypatch.setattr(bundle_place, "lock", late)
    with held(tmp_path / "export"):
        assert path.exists()
    assert len(calls) == 2
    assert not path.exists()


def test_a_file_system_without_locks_refuses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def no_locks(*_: Any) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with held(tmp_path / "export"), held(tmp_path / "export"):
        pass


# ---- what may replace what -------------------------------------------------------------------


def manifest_of(verdicts: dict[str, str], checkpoint: str = "a") -> dict[str, Any]:
    files = {"passed": "x", "unverified": "x"}
    artifacts = {name: {"verdict": v, "file": files.get(v)} for name, v in verdicts.items()}
    return {"artifacts": artifacts, "checkpoint": {"sha256": checkpoint}}


PASSED, FAILED, UNVERIFIED = "passed", "failed", "unverified"


@pytest.mark.parametrize(
    ("older", "newer", "checkpoint", "reason"),
    [
        ({"onnx": PASSED}, {"onnx": PASSED}, "a", None),
        ({"onnx": PASSED}, {"onnx": UNVERIFIED}, "a", "onnx proven there, nothing here"),
        ({"onnx": PASSED}, {"onnx": UNVERIFIED}, "b", "onnx proven there, nothing here"),
        ({"onnx": PASSED}, {"onnx": FAILED}, "b", "onnx proven there, nothing here"),
        ({"onnx": PASSED}, {"pt2": UNVERIFIED}, "b", "onnx proven there, nothing here"),
        ({"onnx": PASSED, "pt2": PASSED}, {"onnx": PASSED, "pt2": FAILED}, "a",
         "pt2 proven there, not here"),
        ({"onnx": PASSED, "pt2": PASSED}, {"onnx": PASSED, "pt2": "unavailable"}, "a",
         "pt2 proven there, not here"),
        # of another checkpoint, something proven is enough
        ({"onnx": PASSED, "pt2": PASSED}, {"onnx": PASSED, "pt2": FAILED}, "b", None),
        # not asked for: kept where it is still proven, and named where it is not
        ({"onnx": PASSED, "pt2": PASSED}, {"onnx": PASSED}, "a", None),
        ({"onnx": UNVERIFIED}, {"onnx": UNVERIFIED}, "a", None),
        ({"onnx": UNVERIFIED}, {"onnx": FAILED}, "a", "no format could be released"),
        ({"onnx": FAILED}, {"onnx": FAILED}, "a", None),
        ({"onnx": FAILED}, {"onnx": PASSED}, "a", None),
    ],
)  # fmt: skip
def test_what_is_proven_is_replaced_only_by_what_is_proven(
    older: dict[str, str], newer: dict[str, str], checkpoint: str, reason: str | None
) -> None:
    assert why_not_replace(manifest_of(older), manifest_of(newer, checkpoint)) == reason


def test_on_request_everything_is_replaced(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export", b"old")
    files = add_own_files(bundle)
    failed = {"onnx": artifact(None, verdict="failed", reasons=["wrong"], parity=None)}
    placed = Stage(bundle).finish(manifest_values(artifacts=failed))
    aside = json.loads((placed / "manifest.json").read_text())
    assert aside["set_aside"] == "onnx proven there, nothing here"
    placed = Stage(bundle).finish(manifest_values(artifacts=failed), overwrite=True)
    assert placed == bundle
    assert not (bundle / "model.onnx").exists()
    has_own_files(bundle, files)
