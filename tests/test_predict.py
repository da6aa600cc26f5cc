"""predict.py, the project's and the bundle's own: output, faults, and what is not imported."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import predict
from exporters import onnx_float
from exporters.bundle import Stage, describe_files, sha256_of
from exporters.command_line import run_command
from exporters.runtime import Predictor, parse_arguments, predict_parser, report
from preprocessing.reader import Reader
from tasks.single_label import SingleLabel
from tests.exporters import small_run
from tests.exporters.small_manifest import artifact, manifest_values, rewrite

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
    stage.add_runtime({"kind": "image"}, {})
    stage.finish(
        manifest_values(
            class_names=CLASSES,
            preprocessing=job.description["preprocessing"],
            artifacts={"onnx": artifact("model.onnx")},
            recommended="onnx",
            checkpoint=exported_from(run / small_run.CHECKPOINT),
        )
    )
    return run / "export"


def exported_from(checkpoint: Path) -> dict[str, Any]:
    return manifest_values()["checkpoint"] | {"sha256": sha256_of(checkpoint)}


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
        found = {row["input"]: row["class"] for row in rows if row["rank"] == "1"}
        assert [row["rank"] for row in rows] == ["1", "2"] * 6
        assert all(0 <= float(row["probability"]) <= 1 for row in rows)
    elif form == "jsonl":
        rows = [json.loads(line) for line in out.splitlines()]
        found = {row["input"]: row["predictions"][0]["class"] for row in rows}
        assert all(len(row["predictions"]) == 2 for row in rows)
    else:
        lines = out.splitlines()
        assert lines[0].split() == ["input", "class", "probability", "class", "2"]
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
        assert a["input"] == b["input"]
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
    assert [row["input"] for row in csv.DictReader(io.StringIO(out))] == list(map(str, good))
    first, second = err.splitlines()
    assert "broken.png: not a picture" in first
    assert "none.png: no such file" in second


def test_addresses_are_never_fetched(bundle: Path, capsys: pytest.CaptureFixture) -> None:
    code, out, err = run_main(capsys, "--model", bundle, "https://example.org/cat.png")
    assert (code, out) == (1, "")
    message = "error: https://example.org/cat.png: no such file (addresses are never fetched)"
    assert err.splitlines() == [message]


def test_a_list_of_paths(
    bundle: Path, pictures: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From standard input, and from a table's column, whose paths start at its folder."""
    names = [path.name for path in sorted(pictures.glob("*.png"))]
    table = pictures / "list.csv"
    table.write_text("split,path\n" + "".join(f"val,{name}\n" for name in names))
    code, out, err = run_main(
        capsys, "--model", bundle, "--format", "csv", "--column", "path", table
    )
    assert (code, err) == (0, "")
    assert [Path(row["input"]).name for row in csv.DictReader(io.StringIO(out))] == names
    lines = "".join(f"{pictures / name}\n" for name in names)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert run_main(capsys, "--model", bundle, "--format", "csv", "-") == (0, out, "")


def test_a_threshold_in_each_form(bundle: Path, pictures: Path, capsys) -> None:
    arguments = "--model", bundle, "--top_k", 3, "--threshold", 1, sorted(pictures.glob("*.png"))[0]
    code, out, err = run_main(capsys, *arguments)
    assert (code, err) == (0, "")
    assert "no class above 1" in out.splitlines()[1]
    assert run_main(capsys, *arguments, "--format", "csv")[1].endswith(".png,0,,\n")
    assert '"predictions": []' in run_main(capsys, *arguments, "--format", "jsonl")[1]
    middle = *arguments[:5], 0.2, arguments[-1], "--format", "jsonl"
    shown = json.loads(run_main(capsys, *middle)[1])["predictions"]
    everything = json.loads(run_main(capsys, *arguments[:4], arguments[-1], "--format", "jsonl")[1])
    assert shown == [x for x in everything["predictions"] if x["probability"] >= 0.2]
    assert 1 <= len(shown) < 3


def test_the_temperature_of_the_manifest(
    bundle: Path, pictures: Path, tmp_path: Path, capsys
) -> None:
    """softmax(logits / T): twice the temperature makes a ratio of probabilities its root."""
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    calibration = json.loads((copy / "manifest.json").read_text())["calibration"]
    arguments = "--top_k", 3, "--format", "jsonl", sorted(pictures.glob("*.png"))[0]
    ratios, orders = [], []
    for temperature in (8.0, 16.0):
        rewrite(copy, calibration=calibration | {"temperature": temperature})
        found = json.loads(run_main(capsys, "--model", copy, *arguments)[1])["predictions"]
        ratios.append(found[0]["probability"] / found[1]["probability"])
        orders.append([x["class"] for x in found])
    assert ratios[1] == pytest.approx(ratios[0] ** 0.5, rel=1e-3)
    assert ratios[1] > 1.1
    whole = json.loads(run_main(capsys, "--model", bundle, *arguments)[1])["predictions"]
    assert orders == [[x["class"] for x in whole]] * 2


def test_a_checkpoint_is_calibrated_as_its_bundle_is(
    run: Path, bundle: Path, pictures: Path, tmp_path: Path, capsys
) -> None:
    """Where the run's bundle is of this very file; else one line says that it is not."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    checkpoint, calibration = copy / small_run.CHECKPOINT, manifest_values()["calibration"]
    arguments = "--top_k", 3, "--format", "jsonl", sorted(pictures.glob("*.png"))[0]
    found, notes = {}, {}
    note = "note: probabilities are not calibrated: no bundle of this very checkpoint"

    def answers(name: str, model: Path) -> None:
        code, out, notes[name] = run_main(capsys, "--model", model, *arguments)
        assert code == 0
        predictions = json.loads(out)["predictions"]
        found[name] = {x["class"]: x["probability"] for x in predictions}

    rewrite(copy / "export", calibration=calibration | {"temperature": 8.0})
    answers("bundle", copy / "export")
    answers("checkpoint", checkpoint)
    assert (notes["bundle"], notes["checkpoint"]) == ("", "")
    assert found["checkpoint"] == pytest.approx(found["bundle"], abs=1e-5)
    assert max(found["bundle"].values()) < 0.95

    link = tmp_path / "link.ckpt"
    link.symlink_to(checkpoint)
    answers("link", link)
    assert (notes["link"], found["link"]) == ("", found["checkpoint"])

    small_run.changed_checkpoint(checkpoint, checkpoint.with_name("last.ckpt"), epoch=9)
    answers("another file", checkpoint.with_name("last.ckpt"))
    shutil.copyfile(checkpoint, tmp_path / "moved.ckpt")
    answers("moved", tmp_path / "moved.ckpt")
    manifest = copy / "export" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("8.0", "9.0", 1))
    answers("changed bundle", checkpoint)
    shutil.rmtree(copy / "export")
    answers("no bundle", checkpoint)
    for name in ("another file", "moved", "changed bundle", "no bundle"):
        assert notes[name].startswith(note), name
        assert len(notes[name].splitlines()) == 1
        assert found[name] == found["no bundle"]
    assert max(found["no bundle"].values()) > max(found["bundle"].values()) + 0.01


def test_any_name_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output is UTF-8 whatever the locale; a file name that is not is shown with escapes."""
    stream = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream, encoding="ascii"))
    assert run_command(lambda: print("gr\xfcn \udcff", flush=True) or 0) == 0
    assert stream.getvalue() == "gr\xfcn \\udcff\n".encode()


@pytest.mark.parametrize("who", ["project", "bundle"])
def test_ctrl_c_is_one_line(bundle: Path, tmp_path: Path, who: str) -> None:
    """While it waits for the next path; what was answered before is there."""
    moved = tmp_path / "moved"
    shutil.copytree(bundle, moved)
    model = ["--model", moved] if who == "project" else []
    script = PROJECT / "predict.py" if who == "project" else moved / "predict.py"
    with subprocess.Popen(
        [sys.executable, script, *model, "-", "--format", "csv", "--batch_size", "1"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stdout is not None
        process.stdin.write("nothing.png\n")
        process.stdin.flush()
        assert "nothing.png: no such file" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == "error: interrupted\n"
        assert process.stdout.read().splitlines()[:1] == ["input,rank,class,probability"]


@pytest.mark.parametrize(
    ("output", "code", "error"),
    [
        (">&-", 1, "error: standard output is closed\n"),
        ("> /dev/full", 1, "error: [Errno 28] No space left on device\n"),
        ("| true", 0, ""),
    ],
)
def test_an_output_that_takes_nothing(
    bundle: Path, pictures: Path, output: str, code: int, error: str
) -> None:
    if output == "> /dev/full" and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    command = shlex.join(map(str, [sys.executable, bundle / "predict.py", *pictures.glob("*.png")]))
    shell = f"set -o pipefail; {command} {output}"
    done = subprocess.run(["bash", "-c", shell], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (code, error)


def test_more_threads_than_cpus_and_more_classes_than_there_are(
    bundle: Path, pictures: Path, capsys
) -> None:
    picture, cpus = sorted(pictures.glob("*.png"))[0], os.cpu_count()
    arguments = "--model", bundle, "--threads", 10**6, "--top_k", 10**9, picture
    code, out, err = run_main(capsys, *arguments)
    assert code == 0
    assert err == f"note: --threads 1000000: taking {cpus}, as many as there are CPUs\n"
    assert len(out.splitlines()) == 2
    assert out.split()[:3] == ["input", "class", "probability"]
    assert "class 4" not in out


def test_a_text_for_pictures_is_one_line(bundle: Path, capsys) -> None:
    code, out, err = run_main(capsys, "--model", bundle, "--text", "a cat")
    assert (code, out, err) == (1, "", "error: --text: this model takes files, not texts\n")


def test_an_output_that_is_not_finite_spoils_only_its_sample(capsys) -> None:
    def infer(inputs: dict[str, np.ndarray]) -> np.ndarray:
        logits = np.tile(np.array([[0.0, 3.0]], np.float32), (len(inputs["images"]), 1))
        logits[1, 0] = np.nan
        return logits

    reader = Reader("image", (), lambda path: np.zeros(1), lambda x: {"images": np.stack(x)})
    arguments = parse_arguments(predict_parser(""), ["a", "b", "c", "--format", "csv"])
    assert report(Predictor(reader, infer, SingleLabel(["x", "y"]), 1.0), arguments) == 1
    out, err = capsys.readouterr()
    assert [line[:4] for line in out.splitlines()[1:]] == ["a,1,", "c,1,"]
    assert err == "error: b: the model's output is not finite\n"
    with pytest.raises(ValueError, match=r"returns \[3, 2\], expected \[3, 5\]"):
        report(Predictor(reader, infer, SingleLabel(list("abcde")), 1.0), arguments)


def test_samples_are_read_when_they_are_needed_and_a_long_table_is_not_collected(capsys) -> None:
    """Never more than a batch is ahead of what was printed."""
    read: list[str] = []

    def infer(inputs: dict[str, np.ndarray]) -> np.ndarray:
        return np.zeros((len(inputs["images"]), 2), np.float32)

    def note(path: object) -> np.ndarray:
        read.append(str(path))
        return np.zeros(1)

    reader = Reader("image", (), note, lambda x: {"images": np.stack(x)})
    files = [f"file-{i:04}" for i in range(300)]
    arguments = parse_arguments(predict_parser(""), ["--batch_size", "10", *files])
    ahead = []
    predictor = Predictor(reader, infer, SingleLabel(["x", "y"]), 1)
    for done, prediction in enumerate(predictor.predict(arguments)):
        assert prediction.name == files[done]
        ahead.append(len(read) - done)
    assert max(ahead) == 10
    assert report(Predictor(reader, infer, SingleLabel(["x", "y"]), 1.0), arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["input", *files]
    assert len({len(line) for line in lines[1:]}) == 1


def test_what_lies_in_a_bundle_besides_is_mentioned(
    bundle: Path, pictures: Path, tmp_path: Path, capsys
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    (copy / "out.csv").write_text("")
    code, out, err = run_main(capsys, "--model", copy, pictures)
    assert (code, err) == (0, "note: not part of the bundle: out.csv\n")
    assert len(out.splitlines()) == 7


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
        (["--model", "m", "--threshold", "1.5", "a.png"], "from 0 to 1, got '1.5'"),
        (["--model", "m"], "nothing to predict for"),
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


def test_the_readme_example_runs_in_a_bundle(
    bundle: Path, pictures: Path, tmp_path: Path, capsys
) -> None:
    """The lines that README gives for a program of one's own, without this project or torch."""
    blocks = re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    (example,) = (block for block in blocks if "onnxruntime.InferenceSession" in block)
    assert len(example.splitlines()) <= 10
    moved = tmp_path / "moved"
    shutil.copytree(bundle, moved)
    shutil.copyfile(sorted(pictures.glob("*.png"))[0], moved / "some.png")
    code = f"import sys; sys.path.insert(0, '')\n{example}\nassert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=moved
    )
    expected = run_main(capsys, "--model", bundle, "--format", "csv", pictures)[1]
    assert (done.stdout.strip(), done.stderr) == (expected.splitlines()[1].split(",")[2], "")


@pytest.fixture(scope="module")
def fresh_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a new environment that holds only what a bundle of pictures needs."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, with_pip=True, symlinks=os.name == "posix")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = [python, "-m", "pip", "install", "--quiet", "numpy", "onnxruntime", "pillow"]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"packages cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    return python


@pytest.mark.slow
def test_a_bundle_in_an_environment_without_torch_and_this_project(
    bundle: Path, pictures: Path, tmp_path: Path, fresh_python: Path, capsys
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(bundle, moved)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*command: object) -> subprocess.CompletedProcess:
        return subprocess.run(
            [fresh_python, *command], capture_output=True, text=True, cwd=tmp_path, env=environment
        )

    for package in ("torch", "pytorch_lightning", "rich"):
        assert "No module named" in run("-c", f"import {package}").stderr
    done = run(moved / "predict.py", "--format", "csv", pictures)
    expected = run_main(capsys, "--model", bundle, "--format", "csv", pictures)[1]
    assert (done.stdout, done.stderr) == (expected, "")


def test_debug_shows_where_an_expected_error_was_raised(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for model in (bundle, tmp_path / "none.ckpt"):
        arguments = ["--model", model, "--artifact", "none", "x.png"]
        code, _, line = run_main(capsys, *arguments)
        assert (code, line.count("\n")) == (1, 1)
        code, _, trace = run_main(capsys, *arguments, "--debug")
        assert code == 1
        assert trace.startswith("Traceback")
        assert trace.endswith(line)
