"""The model card: what it says follows from the manifest, and its Python example runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from exporters.manifest import training_settings
from exporters.model_card import model_card
from preprocessing.text import char_tokenizer
from tests.exporters.small_manifest import artifact, make_bundle, manifest_values


def write_argmax_model(path: Path, inputs: dict[str, tuple[int, list]], value: int) -> None:
    """An ONNX file that gives logits with one class first, whatever goes in."""
    from onnx import TensorProto, helper

    logits = helper.make_tensor("l", TensorProto.FLOAT, [1, 3], np.eye(3)[value])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["l"], ["logits"])],
        "g",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 3])],
        [logits],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path.write_bytes(model.SerializeToString())


TEXT = {"kind": "text", "tokenizer": "tokenizer.json", "max_length": 3, "vocab_size": 4}
TEXT_SPEC = {
    "inputs": [
        {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]},
        {"name": "lengths", "dtype": "int64", "shape": ["batch"]},
    ],
    "dynamic": {"batch": [1, 64], "length": [1, 3]},
}


@pytest.mark.parametrize("kind", ["image", "text"])
def test_the_python_example_runs_in_the_bundle(tmp_path: Path, kind: str) -> None:
    model = tmp_path / "model.onnx"
    if kind == "image":
        write_argmax_model(model, {"images": (2, ["b", 1, 8, 8])}, 1)
        bundle = make_bundle(tmp_path / "export", model.read_bytes())
        Image.new("RGB", (20, 9)).save(bundle / "some.png")
    else:
        write_argmax_model(model, {"tokens": (7, ["b", "l"]), "lengths": (7, ["b"])}, 1)
        files = {"tokenizer.json": char_tokenizer(["<pad>", "<unk>", "a", "b"]).to_str()}
        bundle = make_bundle(
            tmp_path / "export", model.read_bytes(), files,
            preprocessing=TEXT, input_spec=TEXT_SPEC,
        )  # fmt: skip
    card = (bundle / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert len(example.splitlines()) <= 10
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '')\n{example}"],
        cwd=bundle, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("column\n", "")


def test_what_it_says() -> None:
    scores = [{"precision": 0.5, "recall": 0.25, "f1": 1 / 3, "samples": n} for n in (40, 30, 5)]
    evaluation = {"num_samples": 75, "whole": True, "accuracy": 0.5, "classes": scores}
    calibration = {
        "temperature": 1.25, "samples": 75, "error_before": 0.08, "error_after": 0.02, "note": "",
    }  # fmt: skip
    entries = {
        "torchscript": artifact("model.pt", "torch", accuracy=50.0),
        "onnx": artifact("model.onnx", accuracy=50.0, test={"accuracy": 62.5}),
        "onnx-int8": artifact(None, verdict="failed", reasons=["slow"], accuracy=40.0),
    }
    card = model_card(
        manifest_values(
            class_names=["a|b", "line\nbreak", "c"],
            evaluation=evaluation,
            calibration=calibration,
            artifacts=entries,
            recommended="torchscript",
            files={"model.onnx": {"sha256": "f" * 64, "bytes": 5}},
        )
    )
    for line in (
        "# small_cnn: pictures in 3 classes",
        "| model.width | 4 |",
        "| data.name | \"digits\" |",
        "- Epochs up to this checkpoint: 4",
        "- Fingerprint of the data: `ab12`",
        "| a\\|b | 0.5000 | 0.2500 | 0.3333 | 40 |",
        "| line break | 0.5000 | 0.2500 | 0.3333 | 30 |",
        "- 1 classes have fewer than 20 samples there: their scores say little.",
        "| onnx | model.onnx | 0.00 | 50.00 | 62.50 | passed |",
        "| onnx-int8 |  | 0.00 | 40.00 |  | failed |",
        'session = onnxruntime.InferenceSession("model.onnx")',
        f"| model.onnx | 5 | `{'f' * 64}` |",
    ):  # fmt: skip
        assert f"\n{line}\n" in f"\n{card}", line
    assert 'auto model = torch::jit::load("model.pt");' in card
    assert "error 0.0800 before, 0.0200 with temperature 1.25 (fitted on 75 validation" in card
    assert "$" not in card


def test_without_samples_it_says_unverified() -> None:
    card = model_card(manifest_values(files={}))
    assert "Unverified: there were no validation samples." in card
    assert "libtorch" not in card  # no TorchScript file


def test_what_the_test_set_says() -> None:
    test = {"accuracy": 87.5, "paired": {"samples": 40}, "whole": False}
    eager = {"accuracy": 90.0, "test": test, "latency": None, "memory_mb": None}
    card = model_card(manifest_values(files={}, eager=eager))
    assert "\n| eager PyTorch |  |  | 90.00 | 87.50 | reference |\n" in card
    assert "\nTest: 40 samples of that set (a part of it), which decided nothing.\n" in card


def test_settings_have_no_paths_and_no_machine() -> None:
    config = {
        "seed": 3, "precision": None, "devices": 4, "runs_dir": "/home/me/runs",
        "data": {"name": "image_folder", "root": "/home/me/data", "batch_size": 8},
        "optimizer": {"name": "sgd", "lr": 0.1}, "ema": {"enabled": False, "decay": 0.9},
        "logger": "wandb",
    }  # fmt: skip
    settings = training_settings(config)
    assert settings == {
        "data.name": "image_folder", "data.batch_size": 8, "seed": 3, "optimizer.name": "sgd",
        "optimizer.lr": 0.1,
    }  # fmt: skip
    assert "/home" not in json.dumps(settings)
