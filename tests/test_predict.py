"""predict.py, the project's and the bundle's own: output, faults, and what is not imported."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import predict
from exporters import onnx_float
from exporters.bundle import Stage, describe_files
from tests.exporters import small_run

PROJECT = Path(predict.__file__).parent
CLASSES = ["row", "column", "corner"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def bundle(run: Path) -> Path:
    """A bundle with an ONNX file, put together without the whole export."""
    job = small_run.make_job(run)
    stage = Stage(run / "export")
    folder = stage.candidate("onnx")
    folder.mkdir()
    with torch.no_grad():
        onnx_float.export(job, folder / "model.onnx")
    stage.accept("onnx", describe_files(folder, "model.onnx"))
    stage.add_runtime("image", {})
    entry = {"file": "model.onnx", "runtime": "onnxruntime", "verdict": "passed", "reasons": []}
    stage.finish(
        {
            "manifest_version": 1,
            "class_names": CLASSES,
            "preprocessing": job.description["preprocessing"],
            "artifacts": {"onnx": entry},
            "recommended": "onnx",
        }
    )
    return run / "export"


@pytest.fixture(scope="module")
def pictures(run: Path) -> Path:
    """Six pictures, named after their class."""
    folder = run.parent / "pictures"
    folder.mkdir()
    with np.load(run / "samples" / "validation.npz") as file:
        for i in range(6):
            name = CLASSES[file["targets"][i]]
            Image.fromarray(file["images"][i, 0]).save(folder / f"{name}-{i}.png")
    (folder / "notes.txt").write_text("not a picture, and not taken from a folder")
    return folder


def run_main(capsys: pytest.CaptureFixture, *arguments: object) -> tuple[int, str, str]:
    code = predict.main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize("form", ["table", "csv", "jsonl"])
@pytest.mark.parametrize("source", ["bundle", "checkpoint"])
def test_names_and_probabilities(
    run: Path, bundle: Path, pictures: Path, capsys: pytest.CaptureFixture, form: str, source: str
) -> None:
    model = bundle if source == "bundle" else run / small_run.CHECKPOINT
    arguments = "--model", model, "--format", form, "--top_k", 2, "--batch_size", 4, pictures
    code, out, err = run_main(capsys, *arguments)
    assert (code, err) == (0, "")
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(out)))
        found = {row["file"]: row["class"] for row in rows if row["rank"] == "1"}
        assert [row["rank"] for row in rows] == ["1", "2"] * 6
        assert all(0 <= float(row["probability"]) <= 1 for row in rows)
    elif form == "jsonl":
        rows = [json.loads(line) for line in out.splitlines()]
        found = {row["file"]: row["predictions"][0]["class"] for row in rows}
        assert all(len(row["predictions"]) == 2 for row in rows)
    else:
        lines = out.splitlines()
        assert lines[0].split() == ["file", "class", "probability", "class", "2", "probability"]
        found = {line.split()[0]: line.split()[1] for line in lines[1:]}
    assert len(found) == 6
    right = sum(name == Path(file).name.split("-")[0] for file, name in found.items())
    assert right >= 5


def test_bundle_and_checkpoint_agree(
    run: Path, bundle: Path, pictures: Path, capsys: pytest.CaptureFixture
) -> None:
    outputs = [
        run_main(capsys, "--model", model, "--format", "jsonl", "--top_k", 3, pictures)[1]
        for model in (bundle, run / small_run.CHECKPOINT)
    ]
    first, second = ([json.loads(line) for line in out.splitlines()] for out in outputs)
    for a, b in zip(first, second, strict=True):
        assert a["file"] == b["file"]
        for x, y in zip(a["predictions"], b["predictions"], strict=True):
            assert x["class"] == y["class"]
            assert x["probability"] == pytest.approx(y["probability"], abs=1e-5)


def test_a_broken_picture_is_reported_and_the_others_are_done(
    bundle: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "broken.png").write_bytes(b"nonsense")
    good = sorted(pictures.glob("*.png"))[:2]
    arguments = [good[0], tmp_path / "broken.png", tmp_path / "none.png", good[1]]
    code, out, err = run_main(capsys, "--model", bundle, "--format", "csv", *arguments)
    assert code == 1
    assert [row["file"] for row in csv.DictReader(io.StringIO(out))] == list(map(str, good))
    first, second = err.splitlines()
    assert "broken.png: not a picture" in first
    assert "none.png: no such file" in second


def test_addresses_are_never_fetched(bundle: Path, capsys: pytest.CaptureFixture) -> None:
    code, out, err = run_main(capsys, "--model", bundle, "https://example.org/cat.png")
    assert (code, out) == (1, "")
    assert "addresses are never fetched" in err


def test_a_folder_without_pictures_is_one_line(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    code, _, err = run_main(capsys, "--model", bundle, tmp_path)
    assert code == 1
    assert "no files with .bmp" in err
    assert len(err.splitlines()) == 1


def test_a_changed_byte_in_the_bundle_is_one_line(
    bundle: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    content = bytearray((copy / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (copy / "model.onnx").write_bytes(bytes(content))
    code, out, err = run_main(capsys, "--model", copy, pictures)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {copy / 'model.onnx'} was changed after the export")
    assert len(err.splitlines()) == 1


def test_wrong_models_are_one_line(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for model, message in ((tmp_path, "no bundle at"), (tmp_path / "x.ckpt", "no checkpoint at")):
        code, _, err = run_main(capsys, "--model", model, pictures)
        assert code == 1
        assert message in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.png"], "--model"),
        (["--model", "m", "--top_k", "0", "a.png"], "at least 1, got '0'"),
        (["--model", "m", "--fromat", "csv", "a.png"], "did you mean --format?"),
        (["--model", "m", "--format", "xml", "a.png"], "invalid choice: 'xml'"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture, arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        predict.main(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


SHOW_IMPORTS = """
import os, runpy, sys
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    print("exit", end.code)
heavy = ("torch", "pytorch_lightning", "lightning", "rich", "onnx", "matplotlib")
print("imported", [name for name in heavy if name in sys.modules])
"""


@pytest.mark.parametrize("who", ["project", "bundle"])
def test_a_bundle_is_run_without_torch(
    bundle: Path, pictures: Path, tmp_path: Path, who: str
) -> None:
    """In a fresh process; the bundle's own, moved elsewhere, also without this project."""
    moved = tmp_path / "moved"
    shutil.copytree(bundle, moved)
    command = [sys.executable, "-c", SHOW_IMPORTS]
    if who == "project":
        command += [PROJECT / "predict.py", "--model", moved]
    else:
        command += [moved / "predict.py"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [*command, pictures], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-2:] == ["exit 0", "imported []"]
    assert len(done.stdout.splitlines()) == 9


def test_a_bundle_stays_as_it_was_shipped(bundle: Path, pictures: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(bundle, moved)
    before = sorted(moved.rglob("*"))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, moved / "predict.py", pictures]
    done = subprocess.run(command, capture_output=True, env=environment)
    assert done.returncode == 0
    assert sorted(moved.rglob("*")) == before
