"""A trained tiny network as a run folder leaves it, for the tests of exports."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from callbacks.export import write_samples
from datamodules.contract import described
from export import load_checkpoint
from exporters.candidate import ExportJob, Loader
from exporters.spec import ExportSpec
from lightning_modules.deployed import deploy, network_class
from tests.tiny import TinyImages

CHECKPOINT = "checkpoints/best.ckpt"
ARGUMENTS = {
    "in_channels": 1,
    "image_size": [8, 8],
    "num_classes": 3,
    "stages": 2,
    "width": 4,
    "hidden_features": 16,
    "dropout": 0.2,
}


def make_run(folder: Path) -> Path:
    """Trains for a few steps and writes checkpoint and samples."""
    data = TinyImages(num_train=240, num_val=90)
    data.setup()
    torch.manual_seed(0)
    model = deploy(network_class("small_cnn")(**ARGUMENTS), data.normalisation, data.input_spec)
    inputs, targets = data.samples("train")
    images, labels = torch.from_numpy(inputs["images"]), torch.from_numpy(targets)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    write_samples(data, folder / "samples")
    description = describe(data, accuracy_of(model.eval(), data))
    write_checkpoint(folder / CHECKPOINT, model, description)
    return folder


def accuracy_of(model: nn.Module, data: TinyImages) -> float:
    inputs, targets = data.samples("val")
    with torch.no_grad():
        classes = model(torch.from_numpy(inputs["images"])).argmax(1).numpy()
    return float((classes == targets).mean())


def describe(data: TinyImages, accuracy: float) -> dict[str, Any]:
    return {
        "format": 2,
        "network": {"name": "small_cnn", "arguments": ARGUMENTS},
        **described(data),
        "versions": {"torch": str(torch.__version__)},
        "git_commit": "0" * 40,
        "config": {"precision": "32-true"},
        "scores": {"val/accuracy": accuracy},
        "epoch": 3,
        "global_step": 40,
    }


def write_checkpoint(path: Path, model: nn.Module, description: dict[str, Any]) -> Path:
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": state, "description": description}, path)
    return path


def changed_checkpoint(source: Path, target: Path, **changes: Any) -> Path:
    """A copy whose description or weights differ."""
    checkpoint = torch.load(source, weights_only=True)
    weights = changes.pop("weights", {})
    checkpoint["description"] |= changes
    checkpoint["state_dict"] |= weights
    target.parent.mkdir(parents=True, exist_ok=True)
    torch.save(checkpoint, target)
    return target


def loader(run: Path) -> Loader:
    return partial(load_checkpoint, run / CHECKPOINT, False)


def make_job(run: Path) -> ExportJob:
    module, description = loader(run)()
    spec = ExportSpec.from_json(description["input_spec"])
    with np.load(run / "samples" / "calibration.npz") as file:
        calibration = {"images": file["images"]}
    example = spec.example(calibration)
    return ExportJob(module, spec, example, description, calibration, 240, None)
