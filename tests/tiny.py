"""Small real parts that many tests use: image data that can be learnt, and a module on it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from datamodules.contract import described
from datamodules.image_datamodule import ImageDataModule
from datamodules.image_splits import ImageSplits
from datamodules.packed_images import PackedImages
from lightning_modules.classifier import Classifier
from lightning_modules.deployed import deploy, network_class
from lightning_modules.description import describe
from lightning_modules.losses import build_loss
from lightning_modules.network_signature import network_arguments


def tiny_split(num_samples: int, seed: int, size: int = 8) -> PackedImages:
    """Noise with a bright row (class 0), column (1) or corner (2)."""
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 100, (num_samples, 1, size, size), dtype=np.uint8)
    targets = np.arange(num_samples) % 3
    images[targets == 0, :, size // 2, :] += 120
    images[targets == 1, :, :, size // 2] += 120
    images[targets == 2, :, : size // 2, : size // 2] += 120
    return PackedImages(images, targets.astype(np.int64))


class TinyImages(ImageDataModule):
    """Three classes, 8x8."""

    def __init__(
        self,
        batch_size: int = 8,
        num_train: int = 48,
        num_val: int = 15,
        seed: int = 0,
        crop_padding: int = 0,
        num_workers: int | None = 0,
    ) -> None:
        super().__init__(None, batch_size, num_workers, seed, crop_padding=crop_padding)
        self.sizes = (num_train, num_val)

    def load(self) -> ImageSplits:
        num_train, num_val = self.sizes
        return ImageSplits(
            ["row", "column", "corner"],
            tiny_split(num_train, 1),
            tiny_split(num_val, 2),
            tiny_split(num_val, 3),
        )


def tiny_classifier(
    data: Any,
    network: str = "small_cnn",
    model: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
    schedule: dict[str, Any] | None = None,
    loss: dict[str, Any] | None = None,
) -> Classifier:
    torch.manual_seed(0)
    small = {"width": 4, "hidden_features": 16, "dropout": 0.0} if network == "small_cnn" else {}
    network_type = network_class(network)
    arguments = network_arguments(network_type, data.network_arguments(), small | (model or {}))
    description = describe(network, arguments, described(data)) | {
        "versions": {"torch": str(torch.__version__)},
        "git_commit": None,
        "config": {},
    }
    return Classifier(
        deploy(network_type(**arguments), description["normalisation"], data.input_spec),
        build_loss(len(data.class_names), data.train_targets, **loss or {}),
        description,
        {"lr": 1e-2} | (optimizer or {}),
        schedule or {"name": "constant", "warmup": 0.0},
    )


class NoSignals:
    """Nobody asks to stop."""

    received, seconds_waited = 0, 0.0

    def defer(self) -> None: ...

    def act_at_once(self, checkpoint: Path | None) -> None: ...

    def leave(self, number: int, checkpoint: Path | None) -> None:
        raise SystemExit(128 + number)


class TinyRun:
    """A run whose folder holds its checkpoints, too."""

    def __init__(self, folder: Path | None = None, signals: Any = None) -> None:
        self.folder = self.checkpoints = folder
        self.signals = signals or NoSignals()
        self.last_actions: list[Callable[[], Any]] = []

    def at_end(self, action: Callable[[], Any]) -> None:
        self.last_actions.append(action)


def tiny_trainer(folder: Any, **arguments: Any) -> pl.Trainer:
    """A quiet Trainer on one CPU."""
    defaults = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1,
        "default_root_dir": folder,
        "max_epochs": 1,
    }
    return pl.Trainer(**defaults | arguments)
