"""Augmentation of single images in loader workers, by torchvision.transforms.v2.

What it does to a sample is a function of that sample's key alone, so the number of workers and
the composition of batches do not matter.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

AFFINE_SHIFT = 0.1  # largest shift, as a share of the side
AFFINE_SCALE = (0.9, 1.1)
JITTER_HUE = 0.25  # hue moves by this share of the strength of the others
LIMITS = {"random_resized_crop": 1, "affine_degrees": 180, "color_jitter": 1, "rand_augment": 30}


@dataclass(frozen=True)
class SampleAugmentation:
    """Which transforms are on, see `ImageDataModule`; all are off by default."""

    random_resized_crop: float = 0.0
    affine_degrees: float = 0.0
    color_jitter: float = 0.0
    rand_augment: int = 0

    def __post_init__(self) -> None:
        problems = [
            f"--data.{name} must lie in 0..{limit}, got {getattr(self, name)}"
            for name, limit in LIMITS.items()
            if not 0 <= getattr(self, name) <= limit
        ]
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def is_active(self) -> bool:
        return self != SampleAugmentation()

    def __call__(
        self, images: Iterable[np.ndarray], keys: np.ndarray, size: tuple[int, int]
    ) -> Tensor:
        """uint8 [C,h,w] each and uint64 [N] keys -> uint8 [N,C,*size]."""
        transform = self._transform(size)
        augmented = []
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)  # of torchvision's draws, whatever the run's is
        try:
            with torch.random.fork_rng(devices=[]):
                for image, key in zip(images, keys, strict=True):
                    # the CPU generator alone: torch.manual_seed would also reseed a GPU
                    torch.default_generator.manual_seed(int(key))
                    pixels = torch.from_numpy(np.require(image, requirements="W"))
                    augmented.append(transform(pixels))
        finally:
            torch.set_default_dtype(default)
        return torch.stack(augmented)

    def _transform(self, size: tuple[int, int]) -> Any:
        from torchvision.transforms import v2  # loads slowly; only workers need it

        steps: list[Any] = []
        if self.random_resized_crop:
            steps.append(v2.RandomResizedCrop(size, scale=(self.random_resized_crop, 1.0)))
        if self.affine_degrees:
            shift, bilinear = (AFFINE_SHIFT, AFFINE_SHIFT), v2.InterpolationMode.BILINEAR
            degrees = self.affine_degrees
            steps.append(v2.RandomAffine(degrees, shift, AFFINE_SCALE, interpolation=bilinear))
        if strength := self.color_jitter:
            steps.append(v2.ColorJitter(strength, strength, strength, JITTER_HUE * strength))
        if self.rand_augment:
            steps.append(v2.RandAugment(magnitude=self.rand_augment))
        return v2.Compose(steps)
