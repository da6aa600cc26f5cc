"""Tokenized texts as flat arrays on disk: a batch is one vectorised gather."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from datamodules.samplers import EpochIndices
from preprocessing.text import padded_batch

TextBatch = tuple[dict[str, Tensor], Tensor]  # tokens int64 [N,L], lengths int64 [N]; int64 [N]


@dataclass(frozen=True)
class TextSplit:
    """Memory-mapped arrays; sent to a loader worker, it is opened there anew, not copied."""

    folder: Path
    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        return TextSplit, (self.folder, self.name)

    @cached_property
    def ids(self) -> np.ndarray:
        """uint16 or int32 [tokens]: text i is ids[offsets[i]:offsets[i + 1]]."""
        return open_array(self.folder, self.name, "ids")

    @cached_property
    def offsets(self) -> np.ndarray:
        """int64 [M+1]."""
        return open_array(self.folder, self.name, "offsets")

    @cached_property
    def targets(self) -> np.ndarray:
        """int64 [M]."""
        return open_array(self.folder, self.name, "targets")

    def __len__(self) -> int:
        return len(self.targets)

    @cached_property
    def lengths(self) -> np.ndarray:
        """int32 [M], tokens of each text."""
        return np.diff(self.offsets).astype(np.int32)

    def read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """tokens int64 [N,L] and lengths int64 [N] of some texts."""
        tokens, lengths = padded_batch(self.ids, self.offsets, rows)
        return {"tokens": tokens, "lengths": lengths}


@dataclass(frozen=True)
class TextDataset(Dataset):
    """Batches of a split."""

    split: TextSplit

    def __len__(self) -> int:
        return len(self.split)

    def __getitems__(self, wanted: EpochIndices) -> TextBatch:
        inputs, targets = self.split.read(wanted.indices), self.split.targets[wanted.indices]
        return {name: torch.from_numpy(x) for name, x in inputs.items()}, torch.from_numpy(targets)


def open_array(folder: Path, split: str, name: str) -> np.ndarray:
    """Memory-maps an array; its type is the file's suffix."""
    (path,) = folder.glob(f"{split}_{name}.*")
    return np.asarray(np.memmap(path, np.dtype(path.suffix[1:]), "r"))
