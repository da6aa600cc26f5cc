"""What all image sources share: loaders, augmentation, normalisation and the data contract.

A source is a subclass with one method, `load`, that acquires and decodes the images.
"""

import hashlib
import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from datamodules.batch_augmentation import BatchAugmentation
from datamodules.contract import LOOKED_AT
from datamodules.findings import Finding
from datamodules.image_check import look_at_pixels
from datamodules.image_splits import (
    ImageSplits,
    check_labels,
    checked_fraction,
    drop_duplicates,
    mixed,
    warning_lines,
)
from datamodules.lazy_loader import LazyLoading
from datamodules.packed_images import FileImages, ImageDataset, ImageSet, channel_statistics
from datamodules.sample_augmentation import SampleAugmentation, Transform
from datamodules.samplers import (
    EpochBatchSampler,
    EpochIndices,
    EvaluationBatchSampler,
    SameBatches,
)
from datamodules.splits import SPLITS, stratified_subset
from tasks.base import Task

MAX_EXPORT_BATCH = 1024
DEFAULT_VAL_FRACTION = 0.1
MEASURED_IMAGES = 2000  # where pixels are not packed, mean and std come from this many


class ImageDataModule(LazyLoading):
    """Batches of images: {"images": uint8 [N,C,H,W]} and targets int64 [N].

    Args:
        root: Folder or file of the data, where a source needs one.
        batch_size: Samples in one forward pass over all ranks.
        num_workers: Loader processes of each rank; None chooses by data and machine.
        seed: Seed of splits, sample order and augmentation.
        val_fraction: Share of train that becomes val where the source has none; None is 0.1.
        crop_padding: Zero pixels around an image before a random crop of its own size.
        horizontal_flip: Flips images with probability one half.
        erasing: Probability of a random erased box.
        mixup: Alpha of mixup; 0 is off.
        cutmix: Alpha of CutMix; 0 is off.
        random_resized_crop: Smallest share of the area that a random crop keeps; 0 is off.
        affine_degrees: Largest random rotation, with a small shift and change of scale.
        color_jitter: Strength of random brightness, contrast, saturation and hue, 0 to 1.
        rand_augment: Magnitude of RandAugment, 0 to 30; 0 is off.
        transform: Import path of your own augmentation: f(image uint8 [C,H,W], draws), or a class
            of such that is built without arguments; see `sample_augmentation`.
        balanced_sampling: Draws training samples so that all classes come equally often.
        keep_duplicates: Leaves training images that val or test also hold in train.
        mean: Mean of each channel (pixels in 0..1); None computes it from the training split.
        std: Standard deviation of each channel, likewise.
        cache_dir: Folder for decoded pixels and downloads; None is one in the user's cache.
        timeout: Seconds without a batch until a line names the sample that is waited for.
        on_timeout: Whether to wait on then, or to stop training with a checkpoint.
    """

    noun = "image"
    determines = ("num_classes", "in_channels", "image_size")

    def __init__(
        self,
        root: str | None = None,
        batch_size: Annotated[int, ">= 1"] = 64,
        num_workers: Annotated[int, ">= 0"] | None = None,
        seed: int = 0,
        val_fraction: Annotated[float, "0 < x < 1"] | None = None,
        crop_padding: Annotated[int, ">= 0"] = 0,
        horizontal_flip: bool = False,
        erasing: Annotated[float, "0 <= x <= 1"] = 0.0,
        mixup: Annotated[float, ">= 0"] = 0.0,
        cutmix: Annotated[float, ">= 0"] = 0.0,
        random_resized_crop: Annotated[float, "0 <= x <= 1"] = 0.0,
        affine_degrees: Annotated[float, "0 <= x <= 180"] = 0.0,
        color_jitter: Annotated[float, "0 <= x <= 1"] = 0.0,
        rand_augment: Annotated[int, "0 <= x <= 30"] = 0,
        transform: str | None = None,
        balanced_sampling: bool = False,
        keep_duplicates: bool = False,
        mean: list[Annotated[float, "0 <= x <= 1"]] | None = None,
        std: list[Annotated[float, "0 < x <= 1"]] | None = None,
        cache_dir: str | None = None,
        timeout: Annotated[float, "> 0"] = 300.0,
        on_timeout: Literal["wait", "stop"] = "wait",
    ) -> None:
        super().__init__(timeout, on_timeout)
        if (mean is None) != (std is None):
            raise ValueError("--data.mean and --data.std go together: give both or neither")
        self.root = root
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.seed = seed
        self.val_fraction = checked_fraction("val", val_fraction, DEFAULT_VAL_FRACTION)
        self.batch_augmentation = BatchAugmentation(
            crop_padding, horizontal_flip, erasing, mixup, cutmix
        )
        self.sample_augmentation = SampleAugmentation(
            random_resized_crop, affine_degrees, color_jitter, rand_augment
        )
        self.transform = transform
        self.balanced_sampling = balanced_sampling
        self.keep_duplicates = keep_duplicates
        self.mean = mean
        self.std = std
        self.cache_dir = cache_dir

    def use_transform(self, transform: Transform) -> None:
        """Hands in what `transform` leads to, which this package may not import by itself."""
        self.sample_augmentation = replace(self.sample_augmentation, own=transform)

    @abstractmethod
    def load(self) -> ImageSplits:
        """Acquires, decodes and splits the images; called once a process."""

    @cached_property
    def splits(self) -> ImageSplits:
        """Loaded and checked."""
        splits, duplicates = drop_duplicates(self.load(), self.keep_duplicates)
        found = [*splits.findings, *duplicates]
        found += check_labels(splits, found)
        # in mixed order, so that the first few batches are no sample of the first class alone
        return replace(splits, val=mixed(splits.val), test=mixed(splits.test), findings=found)

    @property
    def findings(self) -> list[Finding]:
        return self.splits.findings

    def look(self, full: bool) -> list[Finding]:
        """What the data check looks for in pixels."""
        return [*look_at_pixels(self.splits, full)]

    def setup(self, stage: str | None = None) -> None:
        """Loads the data, which happens once, refuses a split that leaves a rank without a sample,
        and a transform of the user's that makes something else of an image."""
        self.check_ranks({name: len(self.splits[name]) for name in SPLITS})
        if self.sample_augmentation.own is None or stage not in (None, "fit"):
            return
        dataset = ImageDataset(self.splits.train, self.seed, 0, self.sample_augmentation)
        for row in range(min(LOOKED_AT, len(dataset))):
            try:
                dataset.__getitems__(EpochIndices(0, np.array([row])))
            except ValueError as error:
                raise ValueError(f"{self.describe_sample(dataset, row)}: {error}") from error

    # ---- the data contract -------------------------------------------------------------

    @property
    def class_names(self) -> list[str]:
        return self.splits.class_names

    @property
    def task(self) -> Task:
        return self.splits.task

    @property
    def image_shape(self) -> tuple[int, int, int]:  # C, H, W
        return self.splits.train.shape

    @property
    def input_spec(self) -> dict[str, Any]:
        return {
            "inputs": [{"name": "images", "dtype": "uint8", "shape": ["batch", *self.image_shape]}],
            "dynamic": {"batch": [1, MAX_EXPORT_BATCH]},
        }

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How the predictor turns a picture file into an input of this network."""
        channels, height, width = self.image_shape
        return {
            "kind": "image",
            "channels": channels,
            "height": height,
            "width": width,
            "resize": "exact",
            "resize_to": None,
        }

    @cached_property
    def normalisation(self) -> dict[str, list[float]]:
        """Mean and standard deviation of each channel over the training split, in 0..1."""
        if self.mean is not None and self.std is not None:
            self._check_channels(self.mean, self.std)
            return {"mean": list(self.mean), "std": list(self.std)}
        train = self.splits.train
        if isinstance(train, FileImages):
            strata = self.task.strata(train.targets)
            train = train.subset(stratified_subset(strata, MEASURED_IMAGES))
        mean, std = channel_statistics(train)
        if not std.any():
            raise ValueError(
                f"all {len(train)} training images show one and the same colour: there is nothing "
                "to learn; look at the files, or at how they were made"
                + warning_lines(self.findings)
            )
        return {"mean": mean.tolist(), "std": np.maximum(std, 1e-3).tolist()}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over class names, pixels and targets of all splits."""
        digest = hashlib.sha256("\n".join(self.class_names).encode())
        for split in (self.splits.train, self.splits.val, self.splits.test):
            digest.update(repr((split.shape, split.targets.tolist())).encode())
            digest.update(split.hashes.tobytes())
        return digest.hexdigest()

    @property
    def split_targets(self) -> dict[str, np.ndarray]:
        """int64 [M] of each split."""
        return {name: self.splits[name].targets for name in SPLITS}

    def network_arguments(self) -> dict[str, Any]:
        channels, height, width = self.image_shape
        return {
            "num_classes": self.task.num_outputs,
            "in_channels": channels,
            "image_size": (height, width),
        }

    def inputs_of(self, split: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {"images": self.splits[split].read(rows)}

    # ---- loading -----------------------------------------------------------------------

    def _train_sampler(self) -> EpochBatchSampler | SameBatches:
        split = self.splits.train
        strata = self.task.strata(split.targets) if self.balanced_sampling else None
        how = len(split), self.batch_size, self.seed, *self._ranks(), strata
        sampler = EpochBatchSampler(*how)
        return SameBatches(sampler) if self._is_overfitting() else sampler

    def train_loader(self) -> DataLoader:
        split = self.splits.train
        if self.transform is not None and self.sample_augmentation.own is None:
            raise ValueError(f"transform {self.transform!r} was not handed in: use_transform(...)")
        dataset = ImageDataset(
            split,
            self.seed,
            self.batch_augmentation.num_draws if self.batch_augmentation.is_active else 0,
            self.sample_augmentation if self.sample_augmentation.is_active else None,
        )
        return self._image_loader(dataset, self._train_sampler())

    def val_dataloader(self) -> DataLoader:
        if self._is_overfitting():
            return self._image_loader(ImageDataset(self.splits.train), self._train_sampler())
        return self._evaluation_loader(self.splits.val)

    def test_dataloader(self) -> DataLoader:
        return self._evaluation_loader(self.splits.test)

    def on_after_batch_transfer(
        self, batch: tuple[Any, ...], dataloader_idx: int
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Training batches arrive with draws, by which they are augmented here."""
        inputs, targets, *bits = batch
        if bits:
            draws = bits[0].view(torch.float32)
            how = inputs["images"], targets, draws, self.task.num_outputs
            images, targets = self.batch_augmentation(*how)
            inputs = {"images": images}
        return inputs, targets

    def describe_sample(self, dataset: ImageDataset, row: int) -> str:
        split = dataset.split
        name = f" ({os.fsdecode(split.paths[row])})" if isinstance(split, FileImages) else ""
        return f"sample {row}{name}"

    def _evaluation_loader(self, split: ImageSet) -> DataLoader:
        sampler = EvaluationBatchSampler(len(split), self.batch_size, *self._ranks())
        return self._image_loader(ImageDataset(split), sampler)

    def _image_loader(
        self,
        dataset: ImageDataset,
        sampler: EpochBatchSampler | SameBatches | EvaluationBatchSampler,
    ) -> DataLoader:
        in_memory = not isinstance(dataset.split, FileImages) and dataset.augmentation is None
        batch_bytes = sampler.rank_size * int(np.prod(self.image_shape))
        return self._loader(dataset, sampler, in_memory, batch_bytes)

    def _check_channels(self, mean: Sequence[float], std: Sequence[float]) -> None:
        channels = self.image_shape[0]
        if {len(mean), len(std)} != {channels} or min(std) <= 0:
            raise ValueError(
                f"--data.mean and --data.std need {channels} values each, std above 0; "
                f"got {list(mean)} and {list(std)}"
            )
