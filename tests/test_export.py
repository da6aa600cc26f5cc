"""export.py from a checkpoint alone: the bundle, the exit codes, and what is refused."""

import json
import shlex
import shutil
import subprocess
import sys
from collections import namedtuple
from importlib.metadata import version
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
import torch

import export
from datamodules.image_splits import ImageSplits
from exporters import DEFAULT_FORMATS, bundle_place
from exporters.bundle_files import read_manifest
from exporters.bundle_place import UNFINISHED, held
from tests.exporters import small_run
from tests.exporters.small_manifest import make_bundle
from tests.tiny import TinyImages

PROJECT = Path(export.__file__).parent


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def exported(run: Path) -> tuple[Path, subprocess.CompletedProcess]:
    """One whole export in a process of its own, as a user starts it."""
    command = [sys.executable, PROJECT / "export.py", "--ckpt", run / small_run.CHECKPOINT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return run / "export", done


@pytest.mark.slow
def test_the_default_export_passes(exported: tuple[Path, subprocess.CompletedProcess]) -> None:
    folder, done = exported
    assert (done.returncode, done.stderr) == (0, "")
    manifest = read_manifest(folder)
    verdicts = {name: entry["verdict"] for name, entry in manifest["artifacts"].items()}
    assert verdicts == dict.fromkeys(DEFAULT_FORMATS, "passed")
    lines = done.stdout.splitlines()
    assert lines[0].split()[0] == "format"
    assert max(map(len, lines[:-1])) <= 80
    assert lines[-1] == f"Bundle: {folder}"
    assert any(line.startswith("Recommended on this machine: onnx") for line in lines)


@pytest.mark.slow
def test_the_manifest_says_everything(
    exported: tuple[Path, subprocess.CompletedProcess], run: Path
) -> None:
    folder, _ = exported
    manifest = read_manifest(folder)
    assert manifest["class_names"] == ["row", "column", "corner"]
    assert manifest["git_commit"] == "0" * 40
    assert manifest["num_samples"] == 90
    assert manifest["evaluation"]["whole"] is True
    assert manifest["checkpoint"]["scores"]["val/accuracy"] > 0.9
    assert set(manifest["versions"]) >= {"torch", "onnxruntime"}
    assert "cpu_flags" in manifest["machine"]
    assert str(run) not in json.dumps(manifest)  # nothing about where it was made
    int8 = manifest["artifacts"]["onnx-int8"]
    assert int8["details"]["method"] == "static"
    assert int8["parity"]["sqnr_db"] > 15
    assert int8["paired"]["samples"] == 90
    assert {(x["batch"], x["threads"]) for x in int8["latency"]} >= {(1, 1), (32, 1)}
    names = {"predict.py", "preprocessing/images.py", "preprocessing/__init__.py", "model.onnx"}
    assert names | {"README.md", "exporters/manifest.schema.json"} <= set(manifest["files"])
    assert not any("text" in name or "evaluation" in name for name in manifest["files"])


@pytest.mark.slow
def test_the_manifest_is_as_its_schema_says(
    exported: tuple[Path, subprocess.CompletedProcess],
) -> None:
    """By an independent validator, with the copy in the bundle."""
    folder, _ = exported
    schema = json.loads((folder / "exporters" / "manifest.schema.json").read_text())
    jsonschema.validate(json.loads((folder / "manifest.json").read_text()), schema)


@pytest.mark.slow
def test_calibration_and_class_scores_are_in_manifest_card_and_output(
    exported: tuple[Path, subprocess.CompletedProcess],
) -> None:
    folder, done = exported
    manifest = read_manifest(folder)
    calibration = manifest["calibration"]
    assert calibration["samples"] == 90
    assert "100 validation samples are needed" in calibration["note"]
    assert "Probabilities are not calibrated: 100 validation" in " ".join(done.stdout.split())
    classes = manifest["evaluation"]["classes"]
    right = sum(scores["recall"] * scores["samples"] for scores in classes)
    assert right / 90 == pytest.approx(manifest["evaluation"]["accuracy"])
    card = (folder / "README.md").read_text()
    assert f"| corner | {classes[2]['precision']:.4f} |" in card
    assert manifest["files"]["model.onnx"]["sha256"] in card


@pytest.mark.slow
def test_the_test_split_is_reported(
    exported: tuple[Path, subprocess.CompletedProcess], run: Path
) -> None:
    """In manifest, table and card; the checkpoint's figure is what it scores on that split."""
    folder, done = exported
    manifest = read_manifest(folder)
    module, _ = small_run.loader(run)()
    with np.load(run / "samples" / "test.npz") as file:
        classes = module(torch.from_numpy(file["images"])).argmax(1).numpy()
        accuracy = 100 * (classes == file["targets"]).mean()
    assert manifest["eager"]["test"]["accuracy"] == pytest.approx(accuracy)
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    assert lines["eager"][1:3] == [f"{manifest['eager']['accuracy']:.2f}", f"{accuracy:.2f}"]
    for name in ("onnx", "onnx-int8"):
        test = manifest["artifacts"][name]["test"]
        assert test["paired"]["samples"] == 90
        assert test["whole"] is True
        assert f"{test['accuracy_difference']:+.2f}" in lines[name]
        row = f"| {test['accuracy']:.2f} | passed |"
        assert row in (folder / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["labels", "bytes"])
def test_the_test_split_decides_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture, damage: str
) -> None:
    """All labels wrong, or a file that cannot be read: the same verdicts."""
    samples = tmp_path / "samples"
    shutil.copytree(run / "samples", samples)
    with np.load(samples / "test.npz") as file:
        arrays = dict(file)
    if damage == "labels":
        np.savez(samples / "test.npz", **arrays | {"targets": (arrays["targets"] + 1) % 3})
    else:
        (samples / "test.npz").write_bytes(b"PK")
    arguments = ["--ckpt", run / small_run.CHECKPOINT, "--samples", samples]
    arguments += ["--output", tmp_path / "export", "--skip_timing", "--formats", "onnx"]
    assert export.main([str(argument) for argument in arguments]) == 0
    manifest = read_manifest(tmp_path / "export")
    assert manifest["artifacts"]["onnx"]["verdict"] == "passed"
    assert manifest["artifacts"]["onnx"]["latency"] is manifest["eager"]["memory_mb"] is None
    if damage == "labels":
        assert manifest["artifacts"]["onnx"]["test"]["accuracy"] < 50
    else:
        assert manifest["artifacts"]["onnx"]["test"] is manifest["eager"]["test"] is None
        assert "no figures of the test set: " in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_proven_is_not_made_again(
    exported: tuple[Path, subprocess.CompletedProcess], run: Path, tmp_path: Path, capsys
) -> None:
    """Also after an export that was killed, and never when a file or a limit has changed."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    arguments = [
        "--ckpt",
        str(copy / small_run.CHECKPOINT),
        "--skip_timing",
        "--formats",
        "onnx,onnx-int8",
    ]
    (copy / "export").rename(copy / "export.partial")
    (copy / "export.partial" / UNFINISHED).touch()
    (copy / "export.partial" / "candidates" / "onnx").mkdir(parents=True)
    for name in ("onnx/model.onnx", "leftover"):  # as far as it came when it was killed
        shutil.copyfile(
            copy / "export.partial/model.onnx", copy / "export.partial/candidates" / name
        )
    before = read_manifest(exported[0])["artifacts"]["onnx"]

    assert export.main(arguments) == 0
    output = capsys.readouterr().out
    assert "onnx: already proven, not made again" in output
    assert "onnx-int8: already" not in output
    after = read_manifest(copy / "export")["artifacts"]["onnx"]
    for name in ("files", "parity", "accuracy", "paired", "details", "seconds"):
        assert after[name] == before[name], name

    assert export.main(arguments) == 0
    assert capsys.readouterr().out.count("already proven") == 2
    assert export.main([*arguments, "--max_drop", "2"]) == 0
    assert "already proven" not in capsys.readouterr().out


@pytest.mark.slow
def test_nothing_unfinished_is_left_behind(
    exported: tuple[Path, subprocess.CompletedProcess], run: Path
) -> None:
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "export", "samples"]
    assert not (exported[0] / "candidates").exists()


def fails(capsys: pytest.CaptureFixture, *arguments: object) -> str:
    """The one line that a failing export prints."""
    assert export.main([str(argument) for argument in arguments]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert "no checkpoint at" in fails(capsys, "--ckpt", tmp_path / "none.ckpt")


@pytest.mark.slow
def test_what_is_no_checkpoint_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    whole = (run / small_run.CHECKPOINT).read_bytes()
    path = tmp_path / "half.ckpt"
    path.write_bytes(whole[: len(whole) // 2])
    assert "half.ckpt" in fails(capsys, "--ckpt", path)
    path.write_bytes(b"hello")
    assert "half.ckpt" in fails(capsys, "--ckpt", path)
    assert not (tmp_path / "export").exists()


@pytest.mark.slow
def test_a_checkpoint_of_another_network_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    network = {"name": "small_cnn", "arguments": small_run.ARGUMENTS | {"width": 8}}
    path = small_run.changed_checkpoint(
        run / small_run.CHECKPOINT, tmp_path / "a.ckpt", network=network
    )
    assert "weights do not fit network 'small_cnn'" in fails(capsys, "--ckpt", path)


def test_nan_weights_are_refused_by_name(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    weights = {"model.network.head.bias": torch.tensor([0.0, float("nan"), 0.0])}
    path = small_run.changed_checkpoint(
        run / small_run.CHECKPOINT, tmp_path / "a.ckpt", weights=weights
    )
    message = fails(capsys, "--ckpt", path)
    assert "network.head.bias holds 1 values of 3 that are NaN" in message


def test_another_score_than_recorded_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = small_run.changed_checkpoint(
        run / small_run.CHECKPOINT, tmp_path / "a.ckpt", scores={"val/accuracy": 0.5}
    )
    message = fails(capsys, "--ckpt", path, "--samples", run / "samples")
    assert "is not the one that was trained" in message
    assert "recorded 50.00%" in message


def test_samples_of_another_shape_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    images = np.zeros((5, 1, 9, 9), np.uint8)
    np.savez(tmp_path / "validation.npz", images=images, targets=np.zeros(5, np.int64))
    message = fails(capsys, "--ckpt", run / small_run.CHECKPOINT, "--samples", tmp_path)
    assert "validation.npz: expected images uint8 [batch,1,8,8], found uint8 [5,1,9,9]" in message


def test_a_folder_that_is_no_bundle_is_not_replaced(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    message = fails(capsys, "--ckpt", run / small_run.CHECKPOINT, "--output", tmp_path)
    assert "exists and is not a bundle" in message
    assert (tmp_path / "thesis.tex").exists()


def test_an_unwritable_place_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "export"
    assert "cannot write to" in fails(
        capsys, "--ckpt", run / small_run.CHECKPOINT, "--output", output
    )


def test_a_full_disk_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")(100, 99, 1_000_000)  # noqa: PYI024
    monkeypatch.setattr(bundle_place.shutil, "disk_usage", lambda _: usage)
    message = fails(capsys, "--ckpt", run / small_run.CHECKPOINT, "--output", tmp_path / "export")
    assert "the export needs about" in message
    assert "only 1 MB are free" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the arguments --ckpt --benchmark --compare is required"),
        (["--ckpt", "a", "--benchmark", "b"], "not allowed with argument --ckpt"),
        (["--compare", "a"], "expected 2 arguments"),
        (["--ckpt", "a", "--formats", "onxx"], "unknown format 'onxx'; there are torchscript"),
        (["--ckpt", "a", "--max_dorp", "1"], "did you mean --max_drop?"),
        (["--ckpt", "a", "--timeout", "soon"], "expected a number from 1 to 1e+06, got 'soon'"),
        (["--ckpt", "a", "--timeout", "inf"], "expected a number from 1 to 1e+06, got 'inf'"),
        (["--ckpt", "a", "--timeout", "0"], "expected a number from 1 to 1e+06, got '0'"),
        (["--ckpt", "a", "--max_drop=-5"], "expected a number from 0 to 100, got '-5'"),
        (["--ckpt", "a", "--max_drop", "nan"], "expected a number from 0 to 100, got 'nan'"),
        (["--ckpt", "a", "--max_drop_fp32", "101"], "expected a number from 0 to 100, got '101'"),
        (["--ckpt", "a", "--min_agreement", "1000"], "from 0 to 100, got '1000'"),
        (["--ckpt", "a", "--requested", "onxx"], "unknown format 'onxx'; there are torchscript"),
        (["--ckpt", "a", "--opset", "17"], "expected 18 to 25, which PyTorch's exporter"),
        (["--ckpt", "a", "--opset", "26"], f"and ONNX Runtime {version('onnxruntime')} take, got"),
        (["--ckpt", "a", "--opset", "new"], "expected 18 to 25"),
        (
            ["--ckpt", "a", "--skip_timing", "--fail_if_slower"],
            "the timing that --skip_timing leaves out",
        ),
        (
            ["--ckpt", "a", "--formats", "int8", "--fail_if_slower"],
            "timed against onnx: add it to --formats",
        ),
        (["--ckpt", "a", "--formats", "onnx", "--requested", "aoti"], "--requested aoti: not one"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture, arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        export.main(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("flags", [["--benchmark"], ["--compare", "elsewhere"]])
def test_a_folder_that_is_no_bundle_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture, flags: list[str]
) -> None:
    assert f"no bundle at {tmp_path if flags[1:] == [] else 'elsewhere'}" in fails(
        capsys, *flags, tmp_path
    )


def test_debug_shows_where_an_expected_error_was_raised(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    line = fails(capsys, "--ckpt", tmp_path / "none")
    assert export.main(["--ckpt", str(tmp_path / "none"), "--debug"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert line.strip() == lines[-1]


@pytest.mark.slow
def test_another_opset(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """It is in the files and in the manifest; a proof holds for one opset only."""
    samples = tmp_path / "samples"
    shutil.copytree(run / "samples", samples)
    arguments = ["--ckpt", run / small_run.CHECKPOINT, "--samples", samples]
    arguments += [
        "--output",
        tmp_path / "export",
        "--skip_timing",
        "--formats",
        "onnx,onnx-int8",
        "--opset",
    ]
    for opset, proven in (("18", 0), ("18", 2), ("25", 0)):
        assert export.main([str(argument) for argument in (*arguments, opset)]) == 0
        assert capsys.readouterr().out.count("already proven") == proven
        for entry in read_manifest(tmp_path / "export")["artifacts"].values():
            assert entry["details"]["opset"] == int(opset)
            model = onnx.load(tmp_path / "export" / entry["file"])
            assert model.opset_import[0].version == int(opset)


# ---- what is proven, and what would take its place -----------------------------------------------


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def bare(run: Path, tmp_path: Path) -> Path:
    """A checkpoint without samples, and a bundle that an export has proven."""
    shutil.copyfile(run / small_run.CHECKPOINT, tmp_path / "best.ckpt")
    make_bundle(tmp_path / "export", b"proven")
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="TorchScript is absent there")
def test_without_samples_a_file_is_unverified_and_replaces_nothing_proven(
    bare: Path, capsys: pytest.CaptureFixture
) -> None:
    before = content_of(bare / "export")
    arguments = ["--ckpt", str(bare / "best.ckpt"), "--skip_timing", "--formats", "torchscript"]
    assert export.main([*arguments, "--requested", ""]) == 3  # none passed
    output = " ".join(capsys.readouterr().out.split())
    assert f"no validation.npz in {bare / 'samples'}: nothing can be proven" in output
    assert f"stays in {bare / 'export'}: onnx proven there, nothing here (--overwrite" in output
    assert content_of(bare / "export") == before
    manifest = read_manifest(bare / "export.failed")
    assert manifest["artifacts"]["torchscript"]["verdict"] == "unverified"
    assert manifest["recommended"] is None

    assert export.main([*arguments, "--overwrite"]) == 3
    assert "no longer in the bundle: onnx" in capsys.readouterr().out
    assert list(read_manifest(bare / "export")["artifacts"]) == ["torchscript"]


@pytest.mark.parametrize("what", ["missing", "file", "empty"])
def test_samples_that_are_not_where_they_should_be_are_named(
    bare: Path, capsys: pytest.CaptureFixture, what: str
) -> None:
    wrong = bare / "wrong"
    if what == "file":
        wrong.write_text("")
    elif what == "empty":
        wrong.mkdir()
    before = content_of(bare)
    message = fails(capsys, "--ckpt", bare / "best.ckpt", "--samples", wrong)
    expected = "has no validation.npz" if what == "empty" else "is no folder"
    assert f"--samples {wrong} {expected}" in message
    assert content_of(bare) == before


def tiny_data(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What --data.root leads to: the data of the run (seed 0), or others."""

    class Data(TinyImages):
        def load(self) -> ImageSplits:
            splits = super().load()
            for split in (splits.train, splits.val, splits.test):
                split.images[:] = np.roll(split.images, seed, axis=0)
            return splits

    data = Data(num_train=240, num_val=90)
    data.setup()
    monkeypatch.setattr(export, "rebuild_datamodule", lambda *_: data)


def data_of(run: Path, folder: Path, accuracy: float | None = None) -> Path:
    """A checkpoint that says which data it was trained on."""
    data = TinyImages(num_train=240, num_val=90)
    data.setup()
    changes = {} if accuracy is None else {"scores": {"val/accuracy": accuracy}}
    return small_run.changed_checkpoint(
        run / small_run.CHECKPOINT, folder / "a.ckpt", fingerprint=data.fingerprint, **changes
    )


@pytest.mark.slow
def test_other_data_never_take_the_place_of_the_samples(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, samples = data_of(run, tmp_path), tmp_path / "samples"
    shutil.copytree(run / "samples", samples)
    before = content_of(tmp_path)
    tiny_data(1, monkeypatch)
    with pytest.raises(ValueError, match="not the data that the checkpoint was trained on"):
        export.write_samples_from_data(checkpoint, "other", False, samples)
    with pytest.raises(ValueError, match="is not the one that was trained on these data"):
        export.write_samples_from_data(checkpoint, "other", False, tmp_path / "new")
    assert content_of(tmp_path) == before
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_samples_are_made_from_the_data_of_the_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = data_of(run, tmp_path)
    tiny_data(0, monkeypatch)
    for _ in range(2):
        export.write_samples_from_data(checkpoint, "same", False, tmp_path / "run" / "samples")
        with np.load(tmp_path / "run" / "samples" / "validation.npz") as file:
            assert len(file["targets"]) == 90
    # the fingerprint also knows names of files; the samples tell that nothing else has changed
    monkeypatch.setattr(type(export.rebuild_datamodule()), "fingerprint", "moved")
    export.write_samples_from_data(checkpoint, "moved", False, tmp_path / "run" / "samples")
    names = {"validation.npz", "test.npz", "calibration.npz", "evaluation.npz"}
    assert set(content_of(tmp_path / "run" / "samples")) == names
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["samples"]


@pytest.mark.slow
def test_formats_that_are_still_proven_stay(
    exported: tuple[Path, subprocess.CompletedProcess], run: Path, tmp_path: Path, capsys
) -> None:
    """Also under another opset and other limits; nothing that another checkpoint has given."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "export" / "answers.csv").write_text("mine")
    arguments = ["--ckpt", str(copy / small_run.CHECKPOINT), "--formats"]
    before = read_manifest(copy / "export")["artifacts"]
    assert export.main([*arguments, "onnx-int8", "--opset", "18", "--max_drop", "2"]) == 0
    printed = capsys.readouterr().out
    after = read_manifest(copy / "export")["artifacts"]
    assert list(after) == list(before)
    for name in before:
        assert (f"{name}: still proven, stays" in printed) == (name != "onnx-int8")
        assert (after[name]["files"] == before[name]["files"]) == (name != "onnx-int8")
    assert after["onnx-int8"]["slowdown"] is not None  # against the one that stayed

    weights = {"model.network.head.bias": torch.tensor([0.01, 0.0, 0.0])}
    small_run.changed_checkpoint(Path(arguments[1]), Path(arguments[1]), weights=weights)
    assert export.main([*arguments, "onnx"]) == 0
    printed = capsys.readouterr().out
    assert "no longer in the bundle: torchscript, pt2, onnx-int8 (not proven for" in printed
    assert list(read_manifest(copy / "export")["artifacts"]) == ["onnx"]
    assert (copy / "export" / "answers.csv").read_text() == "mine"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="TorchScript is absent there")
def test_a_bundle_behind_a_link_is_replaced_and_the_link_stays(
    bare: Path, capsys: pytest.CaptureFixture
) -> None:
    (bare / "shelf").mkdir()
    (bare / "export").rename(bare / "shelf" / "bundle")
    (bare / "export").symlink_to(bare / "shelf" / "bundle")
    arguments = [
        "--ckpt",
        str(bare / "best.ckpt"),
        "--skip_timing",
        "--formats",
        "torchscript",
        "--overwrite",
    ]
    assert export.main(arguments) == 3
    assert (bare / "export").is_symlink()
    assert list(read_manifest(bare / "shelf" / "bundle")["artifacts"]) == ["torchscript"]
    assert [path.name for path in (bare / "shelf").iterdir()] == ["bundle"]


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["--requested=", "--samples=none"])
def test_an_output_without_a_reader_stops_nothing(bare: Path, asked: str) -> None:
    """`| true` ends before the first line comes; the exit code is that of the export."""
    command = [sys.executable, PROJECT / "export.py", "--ckpt", bare / "best.ckpt", asked]
    command += ["--skip_timing", "--formats", "torchscript", "--overwrite"]
    shell = f"set -o pipefail; {shlex.join(map(str, command))} | true"
    done = subprocess.run(["bash", "-c", shell], stderr=subprocess.PIPE, text=True, cwd=bare)
    if asked == "--requested=":
        assert (done.returncode, done.stderr) == (3, "")  # unverified, without samples
        assert list(read_manifest(bare / "export")["artifacts"]) == ["torchscript"]
    else:
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


def test_two_exports_of_one_run_are_one_message(
    bare: Path, run: Path, capsys: pytest.CaptureFixture
) -> None:
    with held(bare / "export"):
        message = fails(
            capsys, "--ckpt", bare / "best.ckpt", "--samples", run / "samples", "--formats", "onnx"
        )
    assert "another export is writing" in message


@pytest.mark.slow
def test_one_format_fails_and_the_others_stay(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """INT8 from black pictures: refused with its reason, rejected, exit code 3 only on request."""
    samples = tmp_path / "samples"
    shutil.copytree(run / "samples", samples)
    black = np.zeros((240, 1, 8, 8), np.uint8)
    np.savez(samples / "calibration.npz", images=black, targets=np.zeros(240, np.int64))
    arguments = ["--ckpt", run / small_run.CHECKPOINT, "--samples", samples]
    arguments += ["--output", tmp_path / "export", "--skip_timing", "--formats", "onnx,onnx-int8"]
    assert export.main([str(argument) for argument in arguments]) == 3
    output = " ".join(capsys.readouterr().out.split())  # long lines are wrapped
    assert "but training inputs have mean" in output
    manifest = read_manifest(tmp_path / "export")
    assert manifest["recommended"] == "onnx"
    assert manifest["artifacts"]["onnx-int8"]["file"] is None
    assert not (tmp_path / "export" / "model.int8.onnx").exists()
    reason = tmp_path / "export" / "rejected" / "onnx-int8" / "reason.txt"
    assert "but training inputs have mean" in reason.read_text()


@pytest.mark.slow
def test_qat_takes_its_training_data_from_the_configuration(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    data = {"name": "tests.tiny.TinyImages", "num_train": 240, "num_val": 90, "batch_size": 40}
    shutil.copytree(run / "samples", tmp_path / "samples")
    checkpoint = small_run.changed_checkpoint(
        run / small_run.CHECKPOINT,
        tmp_path / "a.ckpt",
        config={"precision": "32-true", "seed": 0, "data": data},
    )
    arguments = [
        "--ckpt",
        str(checkpoint),
        "--skip_timing",
        "--formats",
        "onnx-int8",
        "--qat",
        "on",
    ]
    arguments += ["--qat_epochs", "2", "--allow_external_code"]
    assert export.main(arguments) == 0
    entry = read_manifest(tmp_path / "export")["artifacts"]["onnx-int8-qat"]
    assert entry["verdict"] == "passed"
    assert [point["epoch"] for point in entry["details"]["curve"]] == [0, 1]
    assert all(point["val_accuracy"] > 90 for point in entry["details"]["curve"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "onnx-int8-qat: fine-tuned: epoch 0: loss" in printed
