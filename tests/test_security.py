"""Hostile inputs: nothing that is read can run code, fetch an address or leave its place."""

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import export
import predict
from cli.settings import settings_of
from datamodules.image_folder import ImageFolder
from datamodules.text_readers import Columns, TextSource
from exporters.bundle import Stage
from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.deployed import deploy, network_class
from lightning_modules.networks.torchvision_network import find_weights
from tests.datamodules.pictures import save_tree
from tests.exporters import small_run
from tests.tiny import TinyImages
from train import main


class Hostile:
    """Unpickled, it leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What hostile code leaves behind: so does the module `intruder` when it is imported."""
    path = tmp_path / "ran"
    (tmp_path / "intruder.py").write_text(f"open({str(path)!r}, 'w').close()\nclass Net: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "intruder", raising=False)
    return path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A whole checkpoint of an untrained network, as a run writes it."""
    data = TinyImages()
    data.setup()
    model = deploy(network_class("small_cnn")(**small_run.ARGUMENTS), data.normalisation, {})
    config = {"model": {"name": "small_cnn"}, "data": {"name": "digits"}, "seed": 0}
    description = small_run.describe(data, 0.5) | {"config": config}
    return small_run.write_checkpoint(tmp_path / "x.ckpt", model, description)


def refused(capsys: pytest.CaptureFixture, code: int, message: str, expected: int) -> None:
    error = capsys.readouterr().err
    assert code == expected, error
    assert message in error
    assert error.startswith("error: ")


# ---- configurations and checkpoints ----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: !!python/object/apply:pathlib.Path.touch [{mark}]", "not valid YAML"),
        ("seed: !!python/object/new:intruder.Net []", "not valid YAML"),
        ("seed: !!python/name:intruder.Net", "not valid YAML"),
        ("model: intruder.Net", "--allow_external_code"),
        ("data: intruder.Net", "--allow_external_code"),
        ("allow_external_code: true\nmodel: intruder.Net", "--allow_external_code"),
        ("data: {{class_path: intruder.Net}}", "unknown setting --data.class_path"),
        ("optimizer: {{name: intruder.Net}}", "--optimizer.name"),
    ],
)
def test_a_configuration_file_runs_nothing(
    tmp_path: Path, mark: Path, capsys: pytest.CaptureFixture, text: str, message: str
) -> None:
    (tmp_path / "a.yaml").write_text(text.format(mark=mark))
    refused(capsys, main(["--config", str(tmp_path / "a.yaml")]), message, 2)
    assert not mark.exists()


@pytest.mark.parametrize("command", ["predict", "export", "samples", "--test_only", "--resume"])
@pytest.mark.parametrize("where", ["network", "data", "model", "permitted"])
def test_a_class_path_in_a_checkpoint_is_not_followed(
    tmp_path: Path,
    mark: Path,
    checkpoint: Path,
    capsys: pytest.CaptureFixture,
    where: str,
    command: str,
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    description = content["description"]
    if where in ("network", "permitted"):
        description["network"]["name"] = "intruder.Net"
    if where in ("data", "model", "permitted"):
        description["config"]["data" if where == "data" else "model"]["name"] = "intruder.Net"
    description["config"]["allow_external_code"] = where == "permitted"
    torch.save(content, checkpoint)
    message = "'intruder.Net' lies outside this project's packages"
    is_used = {"samples": where == "data"}.get(command, where in ("network", "permitted"))
    if command.startswith("--"):
        code = main([command, str(checkpoint)])
        refused(
            capsys, code, message if where != "network" else "network", 1 + (where != "network")
        )
    elif command == "predict" and is_used:
        code = predict.main(["--model", str(checkpoint), str(tmp_path / "x.png")])
        refused(capsys, code, message, 1)
    elif is_used:
        build = {
            "export": lambda: export.load_checkpoint(checkpoint, False),
            "samples": lambda: export.rebuild_datamodule(checkpoint, str(tmp_path), False),
        }[command]
        with pytest.raises(ValueError, match=message):
            build()
    assert not mark.exists()


def test_no_file_gives_itself_permission() -> None:
    content = {"allow_external_code": True, "seed": 3}
    assert [setting.name for setting in settings_of(content, "x.ckpt")] == ["seed"]


@pytest.mark.parametrize("command", ["--test_only", "--resume"])
def test_a_pickle_in_a_checkpoint_does_not_run(
    tmp_path: Path, mark: Path, checkpoint: Path, capsys: pytest.CaptureFixture, command: str
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    torch.save(content | {"optimizer_states": [Hostile(mark)]}, checkpoint)
    assert main([command, str(checkpoint)]) == 2
    assert predict.main(["--model", str(checkpoint), str(tmp_path / "x.png")]) == 1
    for line in capsys.readouterr().err.splitlines():
        assert "loading those can run code" in line
    assert not mark.exists()


# names that would be code, or lie elsewhere
FOREIGN = ["predict.py", "numpy.py", "Tokenizer.json", "TOKENIZER.JSON", "tokenizer.json/x.py", "",
           "sub/tokenizer.json", "../tokenizer.json", "/tmp/tokenizer.json", "C:\\tokenizer.json",
           "tokenizer.json ", "tokenizer.json\0", "preprocessing/__init__.py", "manifest.json",
           "sitecustomize.py", ".", "tokenizer\u200b.json", 7]  # fmt: skip


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("name", FOREIGN, ids=repr)
def test_a_checkpoint_brings_no_file_but_its_tokenizer(
    tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture, name: str, kind: str
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    own = {"tokenizer.json": "{}"} if kind == "text" else {}
    named = {"kind": kind, "tokenizer": "tokenizer.json", "max_length": 3, "vocab_size": 4}
    content["description"]["files"] = own | {name: "print('ran')"}
    content["description"]["preprocessing"] |= named
    torch.save(content, checkpoint)
    with pytest.raises(ValueError, match="x.ckpt") as caught:
        read_checkpoint(checkpoint)
    assert repr(name) in str(caught.value)
    code = predict.main(["--model", str(checkpoint), str(tmp_path / "x.png")])
    refused(capsys, code, f"brings files that no model needs: {name!r}", 1)
    with pytest.raises(ValueError, match="brings files"):
        Stage(tmp_path / "export").add_runtime(named, own | {name: "print('ran')"})
    assert not [path for path in tmp_path.rglob("*") if path.name in ("numpy.py", str(name))]


@pytest.mark.parametrize(
    ("files", "tokenizer", "message"),
    [
        ({}, "tokenizer.json", "lacks its tokenizer.json"),
        (None, "tokenizer.json", "lacks its tokenizer.json"),
        ({"tokenizer.json": 5}, "tokenizer.json", "lacks its tokenizer.json"),
        ({"tokenizer.json": "{}"}, "predict.py", "names another tokenizer: 'predict.py'"),
        ({"tokenizer.json": "{}"}, None, "names another tokenizer: None"),
    ],
)
def test_a_text_checkpoint_has_its_tokenizer(
    checkpoint: Path, files: Any, tokenizer: Any, message: str
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    content["description"]["files"] = files
    content["description"]["preprocessing"] = {"kind": "text", "tokenizer": tokenizer}
    torch.save(content, checkpoint)
    with pytest.raises(ValueError, match=message):
        read_checkpoint(checkpoint)


def test_a_pickle_as_pretrained_weights_does_not_run(tmp_path: Path, mark: Path) -> None:
    torch.save({"weight": Hostile(mark)}, tmp_path / "new.pth")
    (tmp_path / "old.pth").write_bytes(pickle.dumps(Hostile(mark), protocol=2))
    for name in ("new.pth", "old.pth"):
        with pytest.raises(ValueError, match="is no file of weights"):
            find_weights("resnet18", str(tmp_path / name))
    assert not mark.exists()


# ---- pictures --------------------------------------------------------------------------------


def test_a_picture_that_grows_beyond_all_bounds_is_refused_by_predict(
    tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture
) -> None:
    Image.new("1", (10_000, 10_000)).save(tmp_path / "huge.png")
    code = predict.main(["--model", str(checkpoint), str(tmp_path / "huge.png")])
    refused(capsys, code, "more than 89,478,485 pixels, refused", 1)


def test_an_address_in_a_table_is_not_fetched(tmp_path: Path) -> None:
    """Whoever connects to anything but this machine raises RuntimeError in a test."""
    save_tree(tmp_path / "p", {"a": 3, "b": 3})
    rows = [f"p/{c}/{n}.png,{c}" for c in "ab" for n in range(3)]
    rows.append("https://example.org/x.png,a")
    (tmp_path / "t.csv").write_text("path,label\n" + "\n".join(rows))
    data = ImageFolder(str(tmp_path / "t.csv"), cache_dir=str(tmp_path / "cache"))
    with pytest.raises(ValueError, match="addresses are never fetched"):
        data.setup()


# ---- tables ----------------------------------------------------------------------------------


def rows_of(path: Path, form: str) -> list[str]:
    columns = Columns(("text",), "label", header=True)
    return [text for text, *_ in TextSource((path,), form).rows(columns)]


def test_cells_are_only_text(tmp_path: Path, mark: Path) -> None:
    """Formulas, templates and descriptions of objects come out as they went in."""
    cells = [
        f"=cmd|' /C touch {mark}'!A0",
        f"$(touch {mark})",
        f"{{{{ open({str(mark)!r}, 'w') }}}}",
        f"!!python/object/apply:pathlib.Path.touch [{mark}]",
        json.dumps({"py/reduce": [{"py/function": "pathlib.Path.touch"}, [str(mark)]]}),
    ]
    quoted = ['"' + cell.replace('"', '""') + '",a' for cell in cells]
    (tmp_path / "t.csv").write_text("text,label\n" + "\n".join(quoted) + "\n")
    lines = [json.dumps({"text": cell, "label": "a"}) for cell in cells]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    pq.write_table(pa.table({"text": cells, "label": ["a"] * 5}), tmp_path / "t.parquet")
    assert rows_of(tmp_path / "t.csv", "table") == cells
    assert rows_of(tmp_path / "t.jsonl", "jsonl") == cells
    assert rows_of(tmp_path / "t.parquet", "parquet") == cells
    assert not mark.exists()


def test_a_pickled_type_in_parquet_is_not_built(tmp_path: Path, mark: Path) -> None:
    """pyarrow before 14.0.1 unpickled a column's type from a file (CVE-2023-47248)."""
    pickled = pickle.dumps(Hostile(mark), protocol=2)
    field = pa.field("text", pa.string(), metadata={
        "ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickled,
    })  # fmt: skip
    schema = pa.schema([field, pa.field("label", pa.string())])
    pq.write_table(pa.table([["x", "y"], ["a", "b"]], schema=schema), tmp_path / "t.parquet")
    assert pickled in (pq.read_schema(tmp_path / "t.parquet").field("text").metadata or {}).values()
    assert rows_of(tmp_path / "t.parquet", "parquet") == ["x", "y"]
    assert not mark.exists()


def test_the_hostile_parts_of_these_tests_would_run(tmp_path: Path, mark: Path) -> None:
    pickle.loads(pickle.dumps(Hostile(mark)))
    assert mark.exists()
    mark.unlink()
    __import__("intruder")
    assert mark.exists()
