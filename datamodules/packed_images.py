"""Images of one split, decoded (one packed array) or still in files, and the dataset over them.

Both forms read batches by index and keep their bookkeeping in NumPy arrays: reading an element
touches no reference count, so memory does not grow in loader workers as with Python lists.

N batch, M samples of a split, C channels, H height, W width.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import Dataset

from datamodules.random_draws import sample_keys, uniform_draws
from datamodules.sample_augmentation import SampleAugmentation
from datamodules.samplers import EpochIndices
from datamodules.stalls import at_sample
from preprocessing.images import decode_image, read_image, to_array

CHUNK = 4096  # images handled at once where a whole split is read


@dataclass(frozen=True)
class PackedImages:
    """One split of decoded images.

    images: uint8 [*,C,H,W], possibly memory-mapped and shared with other splits; targets: int64
    [M]; rows: int64 [M], where in `images` the samples lie (None: as they come).
    """

    images: np.ndarray
    targets: np.ndarray
    rows: np.ndarray | None = None
    known_hashes: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __reduce__(self) -> tuple[Any, ...]:
        """A memory-mapped array travels to a loader worker as its path, not as its pixels."""
        if isinstance(self.images, np.memmap):
            return map_images, (str(self.images.filename), self.targets, self.rows)
        return PackedImages, (self.images, self.targets, self.rows)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @cached_property
    def hashes(self) -> np.ndarray:
        """S16 [M], equal for equal pixels."""
        if self.known_hashes is not None:
            return self.known_hashes
        found = [pixel_hash(image) for chunk in chunks(self) for image in chunk]
        return np.array(found, dtype="S16")

    def subset(self, indices: np.ndarray) -> Self:
        """Some of the samples; pixels are not copied."""
        rows = indices if self.rows is None else self.rows[indices]
        hashes = None if self.known_hashes is None else self.known_hashes[indices]
        return replace(self, targets=self.targets[indices], rows=rows, known_hashes=hashes)

    def read(self, indices: np.ndarray) -> np.ndarray:
        """uint8 [N,C,H,W], one gather."""
        return np.asarray(self.images[indices if self.rows is None else self.rows[indices]])

    def read_original(self, index: int) -> np.ndarray:
        """uint8 [C,H,W]."""
        return self.read(np.array([index]))[0]


@dataclass(frozen=True)
class FileImages:
    """One split of pictures that are decoded whenever they are read.

    paths: bytes [M]; targets: int64 [M]; preprocessing: see `decode_image`; hashes: S16 [M].
    """

    paths: np.ndarray
    targets: np.ndarray
    preprocessing: Mapping[str, Any]
    hashes: np.ndarray

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) that `read` gives."""
        plan = self.preprocessing
        return plan["channels"], plan["height"], plan["width"]

    def subset(self, indices: np.ndarray) -> Self:
        paths, targets, hashes = self.paths[indices], self.targets[indices], self.hashes[indices]
        return replace(self, paths=paths, targets=targets, hashes=hashes)

    def read(self, indices: np.ndarray) -> np.ndarray:
        """uint8 [N,C,H,W], resized as in evaluation."""
        return np.stack([self._read_one(index) for index in indices])

    def _read_one(self, index: int) -> np.ndarray:
        """uint8 [C,H,W]."""
        at_sample(index)
        return decode_image(os.fsdecode(self.paths[index]), self.preprocessing)

    def read_original(self, index: int) -> np.ndarray:
        """uint8 [C,h,w] in the picture's own size."""
        at_sample(index)
        plan = self.preprocessing
        path = os.fsdecode(self.paths[index])
        return to_array(read_image(path, plan["channels"], plan.get("levels")))


ImageSet = PackedImages | FileImages


@dataclass(frozen=True)
class ImageDataset(Dataset):
    """Batches of a split, augmented where asked.

    Args:
        split: The images.
        seed: Seed of all augmentation.
        num_draws: Uniform draws a sample for the augmentation on the device; 0 in evaluation.
        augmentation: Applied here to each image on its own; None in evaluation.
    """

    split: ImageSet
    seed: int = 0
    num_draws: int = 0
    augmentation: SampleAugmentation | None = None

    def __len__(self) -> int:
        return len(self.split)

    def __getitems__(self, wanted: EpochIndices) -> tuple[Any, ...]:
        """{"images": uint8 [N,C,H,W]}, int64 [N] and, if num_draws, bits of float32 [N,num_draws].

        Those as int32, since Lightning rounds every float of a batch to the run's precision, where
        a draw could become 1.
        """
        epoch, indices = wanted
        targets = torch.from_numpy(self.split.targets[indices])
        if self.augmentation is None:
            images = torch.from_numpy(self.split.read(indices))
        else:
            keys = sample_keys(self.seed, epoch, indices)
            # a crop of its own is cut from the whole picture, all else works on the network's size
            whole = self.augmentation.random_resized_crop > 0
            read_one = self.split.read_original
            sources = (read_one(i) for i in indices) if whole else self.split.read(indices)
            images = self.augmentation(sources, keys, self.split.shape[1:])
        if not self.num_draws:
            return {"images": images}, targets
        draws = uniform_draws(self.seed, epoch, indices, self.num_draws)
        return {"images": images}, targets, torch.from_numpy(draws.view(np.int32))


def map_images(path: str, targets: np.ndarray, rows: np.ndarray | None = None) -> PackedImages:
    return PackedImages(np.load(path, mmap_mode="r"), targets, rows)


def chunks(split: ImageSet) -> Iterator[np.ndarray]:
    """All images of a split in order, uint8 [<=CHUNK,C,H,W] at a time."""
    for start in range(0, len(split), CHUNK):
        yield split.read(np.arange(start, min(start + CHUNK, len(split))))


def channel_statistics(split: ImageSet) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each channel, float64 [C], of pixels in 0..1."""
    counts = np.zeros((split.shape[0], 256), dtype=np.int64)
    for images in chunks(split):  # counting levels is exact, and needs no float copy
        counts += np.stack(
            [np.bincount(plane.ravel(), minlength=256) for plane in images.swapaxes(0, 1)]
        )
    share = counts / counts.sum(axis=1, keepdims=True)
    levels = np.arange(256) / 255
    mean = share @ levels
    return mean, np.sqrt((share * (levels - mean[:, None]) ** 2).sum(axis=1))


def pixel_hash(pixels: np.ndarray) -> bytes:
    """16 bytes that two images share only when shape and pixels are equal."""
    content = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
    content.update(np.ascontiguousarray(pixels).data)
    return content.digest()
