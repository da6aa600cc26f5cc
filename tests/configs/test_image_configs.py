"""Each configuration for images trains on a tiny slice of data of its kind."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import models

from tests.datamodules.pictures import cifar_parts, save_tree, write_archive, write_mnist
from tests.fresh_process import run_script

PROJECT = Path(__file__).resolve().parents[2]
CIFAR10_PARTS = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def fashion_mnist(folder: Path) -> list[str]:
    return ["--data.root", str(write_mnist(folder, 300, 40))]


def cifar10(folder: Path) -> list[str]:
    parts = cifar_parts("labels", "label_names", CIFAR10_PARTS, "batches.meta")
    write_archive(folder / "cifar-10-python.tar.gz", "cifar-10-batches-py", parts)
    return ["--data.root", str(folder), "--data.batch_size", "16", "--optimizer.lr", "0.01"]


def image_folder(folder: Path) -> list[str]:
    root = save_tree(folder, {"a": 40, "b": 40}, size=(20, 30))
    return ["--data.root", str(root), "--data.image_size", "16"]


def resnet50(folder: Path) -> list[str]:
    root = save_tree(folder / "pictures", {"a": 20, "b": 20}, size=(40, 50))
    torch.save(models.resnet50(weights=None).state_dict(), folder / "weights.pth")
    return [
        *("--data.root", str(root), "--data.image_size", "32", "--data.resize_to", "36"),
        *("--data.batch_size", "8", "--model.weights", str(folder / "weights.pth")),
        *("--unfreeze.epoch", "1", "--max_epochs", "2"),
    ]


CASES: dict[str, Callable[[Path], list[str]]] = {
    "fashion_mnist.yaml": fashion_mnist,
    "cifar10_resnet.yaml": cifar10,
    "image_folder.yaml": image_folder,
    "resnet50_finetune.yaml": resnet50,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_configuration_trains(name, tmp_path):
    (tmp_path / "data").mkdir()
    arguments = [
        *("--config", str(PROJECT / "configs" / name), "--max_epochs", "1"),
        *CASES[name](tmp_path / "data"),
        *("--data.cache_dir", str(tmp_path / "cache"), "--runs_dir", str(tmp_path / "runs")),
        *("--limit_train_batches", "2", "--limit_val_batches", "1", "--limit_test_batches", "1"),
        *("--accelerator", "cpu", "--export.enabled", "false"),
    ]
    result = run_script(PROJECT / "train.py", *arguments, folder=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    (metrics,) = (tmp_path / "runs").rglob("metrics.csv")
    with metrics.open() as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["train/loss"]) for row in rows if row.get("train/loss")]
    assert losses
    assert np.isfinite(losses).all()
