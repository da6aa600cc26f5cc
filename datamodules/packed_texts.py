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

TextBatch = tuple[tuple[Tensor, Tensor], Tensor]


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


@dataclass(frozen=True)
class TextDataset(Dataset):
    """Batches of a split."""

    split: TextSplit

    def __len__(self) -> int:
        return len(self.split)

    def __getitems__(self, wanted: EpochIndices) -> TextBatch:
        """(tokens int64 [N,L], lengths int64 [N]), targets int64 [N]."""
        rows = wanted.indices
        tokens, lengths = padded_batch(self.split.ids, self.split.offsets, rows)
        targets = torch.from_numpy(self.split.targets[rows])
        return (torch.from_numpy(tokens), torch.from_numpy(lengths)), targets


def open_array(folder: Path, split: str, name: str) -> np.ndarray:
    """Memory-maps an array; its type is the file's suffix."""
    (path,) = folder.glob(f"{split}_{name}.*")
    return np.asarray(np.memmap(path, np.dtype(path.suffix[1:]), "r"))
