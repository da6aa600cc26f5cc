"""What every network and every data source must keep, found through the packages' dicts.

A new line in NETWORKS or DATAMODULES is tried here without touching this file.
"""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import export
from datamodules import DATAMODULES
from datamodules.contract import check_source, described
from exporters import HAS_TORCHSCRIPT
from exporters.spec import ExportSpec
from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.classifier import Classifier
from lightning_modules.deployed import load_deployed, network_class, resolve_class
from lightning_modules.networks import NETWORKS
from tests.tiny import TinyImages, tiny_classifier, tiny_trainer
from tests.tiny_sources import tiny_arguments
from train import main

# ---- data sources -------------------------------------------------------------------------


@pytest.fixture(params=DATAMODULES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    source_class = resolve_class(DATAMODULES[request.param], allow_external_code=True)
    arguments = tiny_arguments(request.param, tmp_path)
    if "cache_dir" in inspect.signature(source_class).parameters:
        arguments["cache_dir"] = str(tmp_path / "cache")
    try:
        data = source_class(**arguments, batch_size=8, seed=3)
        data.prepare_data()
        data.setup()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return data


def inputs_of(batch: Any) -> tuple[Tensor, ...]:
    return tuple(batch[0].values())


def after_transfer(data: Any, batch: Any) -> Any:
    return data.on_after_batch_transfer(batch, 0)


def test_source_says_what_the_program_needs(source: Any) -> None:
    check_source(source)
    names = source.class_names
    assert len(names) == len(set(names)) >= 2
    assert all(isinstance(name, str) for name in names)
    assert len(source.fingerprint) >= 16
    assert source.network_arguments()["num_classes"] == len(names)
    assert source.train_targets.dtype == np.int64
    assert set(source.network_arguments()) == set(source.determines)
    of_data = described(source)
    is_text = of_data["preprocessing"]["kind"] == "text"
    assert set(of_data["files"]) == ({"tokenizer.json"} if is_text else set())
    for value in of_data.values():
        assert is_plain(value), value


def is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(is_plain(item) for item in value)
    return value is None or type(value) in (str, int, float, bool)


def test_batches_keep_the_contract(source: Any) -> None:
    spec = ExportSpec.from_json(source.input_spec)
    loaders = (source.train_dataloader(), source.val_dataloader(), source.test_dataloader())
    batches = [after_transfer(source, next(iter(loader))) for loader in loaders]
    for batch in [*batches, source.example_batch()]:
        inputs, targets = batch
        assert targets.dtype == torch.int64
        assert len(targets) >= 2
        assert 0 <= int(targets.min()) <= int(targets.max()) < len(source.class_names)
        assert list(inputs) == spec.names
        spec.check_arrays(inputs, "batch")


def test_every_evaluation_sample_comes_once(source: Any) -> None:
    for split, loader in (("val", source.val_dataloader()), ("test", source.test_dataloader())):
        _, targets = source.samples(split)
        seen = torch.cat([batch[1] for batch in loader])
        assert torch.equal(seen.sort().values, torch.from_numpy(targets).sort().values)


def test_order_is_a_function_of_seed_and_epoch(source: Any) -> None:
    def epoch(number: int) -> Tensor:
        loader = source.train_dataloader()
        loader.batch_sampler.set_epoch(number)
        return torch.cat([after_transfer(source, batch)[1] for batch in loader])

    assert torch.equal(epoch(1), epoch(1))
    assert not torch.equal(epoch(1), epoch(2))


def test_limited_samples_are_stratified(source: Any) -> None:
    limit = len(source.train_targets) // 2
    inputs, targets = source.samples("train", limit)
    assert len(targets) == limit == len(next(iter(inputs.values())))
    shares = np.bincount(targets, minlength=len(source.class_names))
    whole = np.bincount(source.train_targets, minlength=len(source.class_names))
    expected = limit * whole / whole.sum()
    assert (np.abs(shares - expected) <= 1).all()


# ---- networks -----------------------------------------------------------------------------

SEQUENCE = torch.Generator().manual_seed(0)


class TinyText:
    """What a network for text sees: 3 classes, told apart by one word."""

    class_names = ["a", "b", "c"]
    files = {"tokenizer.json": "{}"}
    preprocessing: dict[str, Any] = {
        "kind": "text", "tokenizer": "tokenizer.json", "max_length": 40
    }  # fmt: skip
    fingerprint = "tiny"
    train_targets = np.arange(12) % 3
    input_spec: dict[str, Any] = {
        "inputs": [
            {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]},
            {"name": "lengths", "dtype": "int64", "shape": ["batch"]},
        ],
        "dynamic": {"batch": [1, 64], "length": [1, 40]},
    }

    def network_arguments(self) -> dict[str, Any]:
        return {"vocab_size": 30, "num_classes": 3, "max_length": 40}

    def example_batch(self) -> tuple[dict[str, Tensor], Tensor]:
        lengths = torch.randint(2, 12, (12,), generator=SEQUENCE)
        tokens = torch.randint(5, 30, (12, 12), generator=SEQUENCE)
        targets = torch.arange(12) % 3
        tokens[:, 0] = targets + 2
        tokens[torch.arange(12)[None] >= lengths[:, None]] = 0
        return {"tokens": tokens, "lengths": lengths}, targets


class LargerImages(TinyImages):
    """32x32 in colour: large enough for every network."""

    def load(self):
        splits = super().load()
        for part in (splits.train, splits.val, splits.test):
            larger = part.images.repeat(4, axis=2).repeat(4, axis=3).repeat(3, axis=1)
            object.__setattr__(part, "images", larger)
        return splits


class TinyRegions(LargerImages):
    """The same pictures, with a box around all of each."""

    @property
    def input_spec(self) -> dict[str, Any]:
        boxes = {"name": "boxes", "dtype": "float32", "shape": ["batch", 4]}
        spec = super().input_spec
        return spec | {"inputs": [*spec["inputs"], boxes]}

    def inputs_of(self, split: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        boxes = np.array([[0, 0, 32, 32]] * len(rows), np.float32)
        return super().inputs_of(split, rows) | {"boxes": boxes}


@pytest.fixture(params=NETWORKS)
def network_and_data(request: pytest.FixtureRequest) -> tuple[str, Any]:
    network = network_class(request.param, True)
    if "vocab_size" in inspect.signature(network).parameters:
        return request.param, TinyText()
    takes_boxes = "boxes" in inspect.signature(network.forward).parameters  # type: ignore[attr-defined]
    return request.param, TinyRegions() if takes_boxes else LargerImages()


@pytest.fixture
def classifier(network_and_data: tuple[str, Any]) -> Classifier:
    name, data = network_and_data
    return tiny_classifier(data, name)


@pytest.mark.slow
def test_loss_falls_when_one_batch_is_overfitted(
    classifier: Classifier, network_and_data: tuple[str, Any]
) -> None:
    batch = network_and_data[1].example_batch()
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = classifier.compute_loss(batch)[0].mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert min(losses[-5:]) < 0.5 * losses[0]


def test_every_parameter_gets_a_gradient(
    classifier: Classifier, network_and_data: tuple[str, Any]
) -> None:
    batch = network_and_data[1].example_batch()
    classifier.compute_loss(batch)[0].mean().backward()
    missing = [n for n, p in classifier.named_parameters() if p.requires_grad and p.grad is None]
    assert not missing


def test_a_prediction_is_independent_of_its_batch(
    classifier: Classifier, network_and_data: tuple[str, Any]
) -> None:
    model: nn.Module = classifier.model.eval()
    inputs = inputs_of(network_and_data[1].example_batch())
    with torch.no_grad():
        together = model(*inputs)
        for row in range(len(together)):
            alone = [x[row : row + 1] for x in inputs]
            if alone[-1].ndim == 1:  # lengths of texts, without the padding that others need
                alone[0] = alone[0][:, : int(alone[1])]
            torch.testing.assert_close(model(*alone)[0], together[row], rtol=1e-4, atol=1e-5)


def test_a_checkpoint_gives_the_same_model_in_primitives_and_tensors(
    classifier: Classifier, network_and_data: tuple[str, Any], tmp_path: Path
) -> None:
    save(classifier, tmp_path / "a.ckpt")
    loaded = load_deployed(read_checkpoint(tmp_path / "a.ckpt"), allow_external_code=True)
    inputs = inputs_of(network_and_data[1].example_batch())
    with torch.no_grad():
        assert torch.equal(loaded(*inputs), classifier.model.eval()(*inputs))


def save(classifier: Classifier, path: Path) -> None:
    description = classifier.description | {"scores": {}, "epoch": 0, "global_step": 0}
    torch.save({"state_dict": classifier.state_dict(), "description": description}, path)


@pytest.mark.slow
def test_default_exports_equal_the_checkpoint(
    classifier: Classifier, network_and_data: tuple[str, Any], tmp_path: Path, capsys
) -> None:
    """export.py makes and proves the formats; 0 means that none failed."""
    data = network_and_data[1]
    batch = data.example_batch()
    with torch.no_grad():  # BatchNorm statistics of the data, as training leaves them
        for _ in range(20):
            classifier.train().compute_loss(batch)
    save(classifier, tmp_path / "a.ckpt")
    arrays = {name: x.numpy() for name, x in batch[0].items()}
    (tmp_path / "samples").mkdir()
    for split in ("validation", "calibration"):
        np.savez(
            tmp_path / "samples" / f"{split}.npz",
            targets=batch[1].numpy(),
            total=np.array(len(batch[1])),
            **arrays,
        )
    command = ["--ckpt", str(tmp_path / "a.ckpt"), "--allow_external_code"]
    code = export.main(
        [*command, "--skip_timing", "--formats", "torchscript," * HAS_TORCHSCRIPT + "pt2,onnx"]
    )
    output = capsys.readouterr()
    assert code == 0, output.out + output.err
    assert output.out.count(" passed") >= 2 + HAS_TORCHSCRIPT


def test_training_really_learns(tmp_path: Path) -> None:
    data = TinyImages()
    model = tiny_classifier(data)
    trainer = tiny_trainer(tmp_path, max_epochs=15)
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data, verbose=False)
    assert model.reports["test"].scalars["accuracy"] > 0.9


# ---- data of a stranger -------------------------------------------------------------------

FOREIGN = [
    ("Pictures", "small_cnn", "images"),
    ("Sentences", "text_cnn", "tokens"),
    ("Pairs", "tests.foreign_sources.PairNetwork", "box"),
]
NO_PREPROCESSING = "export: the bundle will take .npz files of the inputs alone, since this data"


@pytest.mark.slow
@pytest.mark.parametrize(("source_name", "network", "needed"), FOREIGN)
def test_foreign_data_trains_resumes_and_leaves_a_proven_bundle(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], source_name: str, network: str, needed: str
) -> None:
    """Whatever goes in: two epochs, also in two parts; an ONNX file that passes; answers of it."""
    code = ["--allow_external_code", "--data", f"tests.foreign_sources.{source_name}"]
    flags = [*code, "--model", network, "--optimizer.lr", "0.01", "--gradient_check.before_fit"]
    flags += ["false", "--schedule", "constant", "--schedule.warmup", "0"]
    export_flags = ["--export.formats", "onnx", "--export.skip_timing", "true"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert (
        main([*flags, *export_flags, "--max_epochs", "2", "--runs_dir", str(whole)]) == 0
    )  # 0: a format that was asked for by name has passed
    output = capfd.readouterr().out
    assert output.index(NO_PREPROCESSING) < output.index("epoch 1/2")
    assert "data check: 96 training samples, 3 classes" in output
    off = ["--export.enabled", "false"]
    assert main([*flags, *off, "--max_epochs", "1", "--runs_dir", str(parts)]) == 0
    (last,) = parts.glob("*/*/checkpoints/last.ckpt")
    again = ["--resume", str(last), "--max_epochs", "2", "--allow_external_code"]
    assert main([*again, "--allow_changes"]) == 0
    (expected,) = whole.glob("*/*/checkpoints/last.ckpt")
    states = [read_checkpoint(path)["state_dict"] for path in (expected, last)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    check_answers(whole, tmp_path, needed, capfd)


def check_answers(runs: Path, folder: Path, needed: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The bundle classifies .npz files, and refuses what is none or lacks an input."""
    (samples,) = runs.glob("*/*/samples/validation.npz")
    bundle = samples.parents[1] / "export"
    with np.load(samples) as file:
        arrays = {name: file[name][:3] for name in file.files if name not in ("total", "targets")}
    for row in range(3):
        one = {name: array[row] for name, array in arrays.items()}
        np.savez(folder / f"{row}.npz", **one)  # type: ignore[arg-type]
    np.savez(folder / "less.npz", **{n: a[0] for n, a in arrays.items() if n != needed})  # type: ignore[arg-type]
    (folder / "no.npz").write_bytes(b"no archive")
    capfd.readouterr()
    names = [str(folder / f"{name}.npz") for name in (0, 1, 2, "less", "no")]
    done = subprocess.run(
        [sys.executable, "predict.py", "--format", "csv", *names],
        cwd=bundle, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1 + 3, done.stdout + done.stderr
    assert f"no input {needed!r}" in done.stderr
    assert "no.npz: no .npz file of arrays" in done.stderr
    card = (bundle / "README.md").read_text()
    assert ".npz files that hold one array an input" in card


def test_what_foreign_data_lacks_is_said_before_anything_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--allow_external_code", "--data", "tests.foreign_sources.Unfinished"]
    assert main([*flags, "--runs_dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: datamodule Unfinished does not keep the contract of data after its setup (the "
        "README lists it):",
        "  lacks fingerprint: a text that differs for other data",
        "  lacks network_arguments: a method that gives num_classes and the like by name",
        "  lacks val_dataloader: a method that gives a loader",
        "  example_batch: expected images float32 [batch,3], found float64 [2,3]",
        "  samples: label 4 in row 1 lies outside 0..1; labels count from 0",
    ]
    assert not list(tmp_path.iterdir())
