"""Data of a stranger who has read the README: plain DataLoaders over tensors in memory.

Nothing of this project is imported.
"""

from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

NUM_SAMPLES = 96


class Tensors(Dataset):
    """Named tensors and targets, one sample at a time."""

    def __init__(self, inputs: dict[str, Tensor], targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[dict[str, Tensor], Tensor]:
        return {name: x[row] for name, x in self.inputs.items()}, self.targets[row]


class Foreign(pl.LightningDataModule):
    """What the three sources share; three classes, the same samples in each split."""

    class_names = ["a", "b", "c"]
    fingerprint = "made up"

    def __init__(self, seed: int, batch_size: int = 8) -> None:
        super().__init__()
        self.seed, self.batch_size = seed, batch_size

    def setup(self, stage: str | None = None) -> None:
        self.targets = torch.arange(NUM_SAMPLES) % 3
        self.data = Tensors(self.make(torch.Generator().manual_seed(0)), self.targets)

    def make(self, generator: torch.Generator) -> dict[str, Tensor]:
        raise NotImplementedError

    @property
    def train_targets(self) -> np.ndarray:
        return self.targets.numpy()

    def network_arguments(self) -> dict[str, Any]:
        return {"num_classes": 3}

    def example_batch(self) -> tuple[dict[str, Tensor], Tensor]:
        return {name: x[:4] for name, x in self.data.inputs.items()}, self.targets[:4]

    def samples(
        self, split: str, limit: int | None = None
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        inputs = {name: x[:limit].numpy() for name, x in self.data.inputs.items()}
        return inputs, self.train_targets[:limit]

    def train_dataloader(self) -> DataLoader:
        generator = torch.Generator().manual_seed(self.seed)  # not the one that dropout draws from
        return DataLoader(self.data, self.batch_size, generator=generator)

    val_dataloader = test_dataloader = train_dataloader


class Pictures(Foreign):
    """uint8 pixels that the deployed model normalises; a tuple is not needed for one input."""

    normalisation = {"mean": [0.5], "std": [0.25]}
    input_spec = {
        "inputs": [{"name": "images", "dtype": "uint8", "shape": ["batch", 1, 8, 8]}],
        "dynamic": {"batch": [1, 64]},
    }

    def make(self, generator: torch.Generator) -> dict[str, Tensor]:
        images = torch.randint(0, 100, (NUM_SAMPLES, 1, 8, 8), generator=generator)
        images[torch.arange(NUM_SAMPLES), :, self.targets * 3] += 150
        return {"images": images.to(torch.uint8)}

    def network_arguments(self) -> dict[str, Any]:
        return {"num_classes": 3, "in_channels": 1, "image_size": (8, 8)}


class Sentences(Foreign):
    """Token ids padded with 0; there is no tokenizer that a bundle could bring along."""

    input_spec = {
        "inputs": [
            {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]},
            {"name": "lengths", "dtype": "int64", "shape": ["batch"]},
        ],
        "dynamic": {"batch": [1, 64], "length": [1, 12]},
    }

    def make(self, generator: torch.Generator) -> dict[str, Tensor]:
        lengths = torch.randint(2, 12, (NUM_SAMPLES,), generator=generator)
        tokens = torch.randint(5, 30, (NUM_SAMPLES, 12), generator=generator)
        tokens[:, 0] = self.targets + 2
        tokens[torch.arange(12)[None] >= lengths[:, None]] = 0
        return {"tokens": tokens, "lengths": lengths}

    def network_arguments(self) -> dict[str, Any]:
        return {"num_classes": 3, "vocab_size": 30, "max_length": 12}


class Pairs(Foreign):
    """A float picture and a box: a third kind of input that nothing here knows of."""

    input_spec = {
        "inputs": [
            {"name": "picture", "dtype": "float32", "shape": ["batch", 1, 4, 4]},
            {"name": "box", "dtype": "float32", "shape": ["batch", 4]},
        ],
        "dynamic": {"batch": [1, 64]},
    }

    def make(self, generator: torch.Generator) -> dict[str, Tensor]:
        box = torch.rand(NUM_SAMPLES, 4, generator=generator)
        box[torch.arange(NUM_SAMPLES), self.targets] += 2
        return {"picture": torch.rand(NUM_SAMPLES, 1, 4, 4, generator=generator), "box": box}


class PairNetwork(nn.Module):
    """float32 [N,1,4,4], float32 [N,4] -> logits [N,K]."""

    def __init__(self, num_classes: int, width: int = 8) -> None:
        super().__init__()
        self.picture = nn.Conv2d(1, width, 3)
        self.head = nn.Linear(4 * width + 4, num_classes)

    def forward(self, picture: Tensor, box: Tensor) -> Tensor:
        return self.head(torch.cat([self.picture(picture).relu().flatten(1), box], dim=1))


class Unfinished(pl.LightningDataModule):
    """Lacks some parts, and others are not as input_spec says."""

    class_names = ("a", "b")
    train_targets = np.arange(6) % 2
    input_spec = {
        "inputs": [{"name": "images", "dtype": "float32", "shape": ["batch", 3]}],
        "dynamic": {"batch": [1, 64]},
    }

    def __init__(self, seed: int) -> None:
        super().__init__()

    def example_batch(self) -> tuple[Tensor, Tensor]:
        return torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)

    def samples(
        self, split: str, limit: int | None = None
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return {"images": np.zeros((2, 3), np.float32)}, np.array([0, 4])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(Tensors({}, torch.zeros(4)))

    test_dataloader = train_dataloader
