"""predict.py on texts: flags, files, tables and standard input, for a bundle and its checkpoint."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import predict
from exporters import onnx_float
from exporters.bundle_files import sha256_of
from exporters.candidate import ExportJob
from exporters.spec import ExportSpec
from lightning_modules.deployed import deploy, network_class
from preprocessing.text import basic_english_tokenizer
from tests.exporters.small_manifest import make_bundle
from tests.exporters.small_run import write_checkpoint

WORDS = ["<pad>", "<unk>", "good", "bad", "film", "a", "the", "very"]
MAX_LENGTH = 32
NETWORK = {
    "name": "text_cnn",
    "arguments": {
        "vocab_size": len(WORDS), "num_classes": 2, "embedding_dim": 8, "num_filters": 4,
        "kernel_sizes": [3, 5],
    },
}  # fmt: skip
PREPROCESSING = {
    "kind": "text", "tokenizer": "tokenizer.json", "max_length": MAX_LENGTH,
    "vocab_size": len(WORDS),
}  # fmt: skip
INPUT_SPEC = {
    "inputs": [
        {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]},
        {"name": "lengths", "dtype": "int64", "shape": ["batch"]},
    ],
    "dynamic": {"batch": [1, 64], "length": [1, MAX_LENGTH]},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A network that has learnt that "good" is class up, as a checkpoint and as a bundle."""
    folder = tmp_path_factory.mktemp("text")
    torch.manual_seed(0)
    model = deploy(network_class("text_cnn")(**NETWORK["arguments"]), None, INPUT_SPEC)
    tokens = torch.randint(4, len(WORDS), (64, 6))
    targets = torch.arange(64) % 2
    tokens[:, 2] = 3 - targets  # "good" is 2, "bad" is 3: class 1 is up
    lengths = torch.full((64,), 6)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(model(tokens, lengths), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    files = {"tokenizer.json": basic_english_tokenizer(WORDS).to_str()}
    description: dict[str, Any] = {
        "format": 2, "network": NETWORK, "class_names": ["down", "up"],
        "input_spec": INPUT_SPEC, "preprocessing": PREPROCESSING, "files": files,
        "normalisation": None, "config": {}, "scores": {},
    }  # fmt: skip
    write_checkpoint(folder / "best.ckpt", model, description)
    spec = ExportSpec.from_json(INPUT_SPEC)
    job = ExportJob(model.eval(), spec, spec.example(), description, None, None, None)
    with torch.no_grad():
        onnx_float.export(job, folder / "model.onnx")
    values = {"class_names": ["down", "up"], "input_spec": INPUT_SPEC}
    checkpoint = {"file": "best.ckpt", "scores": None, "epoch": 1}
    values["checkpoint"] = checkpoint | {"sha256": sha256_of(folder / "best.ckpt")}
    bundle = make_bundle(
        folder / "export", (folder / "model.onnx").read_bytes(), files,
        preprocessing=PREPROCESSING, **values,
    )  # fmt: skip
    return {"bundle": bundle, "checkpoint": folder / "best.ckpt"}


@pytest.fixture(params=["bundle", "checkpoint"])
def model(request: pytest.FixtureRequest, models: dict[str, Path]) -> Path:
    return models[request.param]


def answers(capsys, model: Path, *arguments: object) -> tuple[int, list[dict], str]:
    command = ["--model", model, "--format", "jsonl", *arguments]
    code = predict.main([str(argument) for argument in command])
    output = capsys.readouterr()
    return code, [json.loads(line) for line in output.out.splitlines()], output.err


def classes(rows: list[dict]) -> list[str]:
    return [row["predictions"][0]["class"] for row in rows]


def test_texts_on_the_command_line(model: Path, capsys) -> None:
    """Words that training never saw are fine: the vocabulary is in the model's own files."""
    texts = ["a very good film", "the film, it is BAD", "unheard-of words: good grief"]
    code, rows, err = answers(capsys, model, *(x for text in texts for x in ("--text", text)))
    assert (code, err) == (0, "")
    assert [row["input"] for row in rows] == texts
    assert classes(rows) == ["up", "down", "up"]


def test_empty_short_and_long_texts(model: Path, capsys) -> None:
    """Each alone, shorter than every kernel, or far longer than the model takes."""
    long = "good " + "film " * 10_000
    for batch_size in (1, 3):
        texts = "--text", "", "--text", "a", "--text", long, "--batch_size", batch_size
        code, rows, err = answers(capsys, model, *texts)
        assert code == 0
        assert [row["input"][:9] for row in rows] == ['""', "a", "good film"]
        assert classes(rows)[2] == "up"
        assert err.splitlines() == [
            "note: texts without a token: 1 (each counts as one unknown token)",
            "note: texts longer than the model takes: 1 (their ends were cut)",
        ]


def test_an_answer_does_not_depend_on_its_batch(model: Path, capsys) -> None:
    texts = [" ".join(WORDS[2:][: 1 + i % 6] * (1 + i % 5)) for i in range(20)]
    arguments = [x for text in texts for x in ("--text", text)]
    alone = answers(capsys, model, *arguments, "--batch_size", 1)[1]
    together = answers(capsys, model, *arguments, "--batch_size", 20)[1]
    for a, b in zip(alone, together, strict=True):
        assert a["input"] == b["input"]
        assert a["predictions"][0]["probability"] == pytest.approx(
            b["predictions"][0]["probability"], abs=2e-6
        )


def test_bundle_and_checkpoint_agree(models: dict[str, Path], capsys) -> None:
    texts = ["--text", "a good film", "--text", "bad", "--text", "very very good, not bad"]
    bundle, checkpoint = (
        answers(capsys, models[name], *texts, "--top_k", 2)[1] for name in ("bundle", "checkpoint")
    )
    for a, b in zip(bundle, checkpoint, strict=True):
        assert [x["class"] for x in a["predictions"]] == [x["class"] for x in b["predictions"]]
        for x, y in zip(a["predictions"], b["predictions"], strict=True):
            assert x["probability"] == pytest.approx(y["probability"], abs=1e-5)


def test_a_table_with_faults_in_it(model: Path, tmp_path: Path, capsys) -> None:
    table = tmp_path / "reviews.csv"
    rows = [("1", "a good film"), ("2", "a bad film"), ("3",), ("4", "nul \0"), ("5", "good")]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *rows])
    code, found, err = answers(capsys, model, "--column", "text", table)
    assert code == 1
    assert [row["input"] for row in found] == [f"{table}:{line}" for line in (2, 3, 6)]
    assert classes(found) == ["up", "down", "up"]
    assert err.splitlines() == [
        f"error: {table}:4: 1 columns, the first row has 2",
        f"error: {table}:5: a NUL byte: not a text",
    ]


def test_columns_of_a_table_are_kept(model: Path, tmp_path: Path, capsys) -> None:
    """A table with a header that nobody knows, divided as Excel does it."""
    table = tmp_path / "reviews.csv"
    table.write_text("v1;v2;class\na1;a good film;yes\na2;a, bad film;no\n", encoding="utf-8-sig")
    command = [
        "--model",
        str(model),
        "--column",
        "1",
        "--keep",
        "v1",
        "--keep",
        "class",
        str(table),
    ]
    assert predict.main([*command, "--format", "csv", "--threshold", "0.5"]) == 0
    output = capsys.readouterr()
    rows = list(csv.reader(io.StringIO(output.out)))
    assert rows[0] == ["input", "rank", "class", "probability", "v1", "class (kept)"]
    assert [row[2:3] + row[4:] for row in rows[1:]] == [["up", "a1", "yes"], ["down", "a2", "no"]]
    assert output.err == f"note: {table}: ';' between the cells (--separator says otherwise)\n"
    assert predict.main([*command, "--format", "csv", "--threshold", "1"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[2] == [f"{table}:3", "0", "", "", "a2", "no"]
    lines = [{"t": "good", "n": 7, "x": None}, {"t": "bad", "n": [1], "x": "é"}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    keep = "--keep", "n", "--keep", "x", "--column", "0"
    code, found, err = answers(capsys, model, *keep, tmp_path / "r.jsonl")
    assert (code, err) == (0, "")
    assert [row["kept"] for row in found] == [{"n": 7, "x": None}, {"n": [1], "x": "é"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keep", "id", "t.csv"], "--keep is for tables: --column says which column is read"),
        (["--keep", "id", "--column", "text", "t.csv"], "--keep needs --format csv or jsonl"),
        (["--separator", ";;", "t.csv"], "must be one character, as ';', or tab; got ';;'"),
        (["--header", "maybe", "t.csv"], "expected true or false, got 'maybe'"),
        (["--encoding", "latin9000", "t.csv"], "no encoding is called 'latin9000'"),
        (["--encoding", "hex", "t.csv"], "no encoding"),
    ],
)
def test_flags_of_tables_that_cannot_be(capsys, arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        predict.main(["--model", "x", *arguments])
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


def test_files_and_folders(model: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "b.txt").write_text("\ufeffa bad film", encoding="utf-8")
    (tmp_path / "a.txt").write_text("a good film")
    (tmp_path / "c.txt").write_bytes(b"caf\xe9")
    (tmp_path / "d.md").write_text("not taken from a folder")
    code, found, err = answers(capsys, model, tmp_path, "https://example.org/a.txt")
    assert code == 1
    assert [Path(row["input"]).name for row in found] == ["a.txt", "b.txt"]
    assert classes(found) == ["up", "down"]
    assert err.splitlines() == [
        f"error: {tmp_path / 'c.txt'}: not UTF-8 (byte 0xe9)",
        "error: https://example.org/a.txt: no such file (addresses are never fetched)",
    ]


def test_a_stream_of_lines(models: dict[str, Path]) -> None:
    """As a user pipes it, through the bundle's own predict.py, in a locale that is not UTF-8."""
    command = [sys.executable, models["bundle"] / "predict.py", "-", "--format", "csv"]
    done = subprocess.run(
        command, input="good café\n\nbad\n".encode(), capture_output=True,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )  # fmt: skip
    assert done.returncode == 0
    rows = list(csv.reader(io.StringIO(done.stdout.decode())))[1:]
    assert [row[0] for row in rows] == ["stdin:1", "stdin:2", "stdin:3"]
    assert [rows[0][2], rows[2][2]] == ["up", "down"]
    assert done.stderr.decode().startswith("note: texts without a token: 1")


def test_a_reader_that_stops_is_no_fault(models: dict[str, Path]) -> None:
    """As `head` does."""
    command = [sys.executable, models["bundle"] / "predict.py", "-", "--format", "csv"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.close()
        _, err = process.communicate(b"good\n" * 20_000)
    assert (process.returncode, err) == (0, b"")
