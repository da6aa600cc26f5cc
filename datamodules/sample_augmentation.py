"""Augmentation of single images in loader workers, by torchvision.transforms.v2 or by the user.

What it does to a sample is a function of that sample's key alone, so the number of workers and
the composition of batches do not matter. A transform of the user's is called last, with an image
uint8 [C,H,W] and the sample's own random numbers, float64 [NUM_OWN_DRAWS] in [0, 1); numbers that
torch draws on the CPU in it belong to the sample too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.random_draws import own_draws

Transform = Callable[[Tensor, np.ndarray], Tensor]

NUM_OWN_DRAWS = 32
AFFINE_SHIFT = 0.1  # largest shift, as a share of the side
AFFINE_SCALE = (0.9, 1.1)
JITTER_HUE = 0.25  # hue moves by this share of the strength of the others


@dataclass(frozen=True)
class SampleAugmentation:
    """Which transforms are on, see `ImageDataModule`; all are off by default."""

    random_resized_crop: float = 0.0
    affine_degrees: float = 0.0
    color_jitter: float = 0.0
    rand_augment: int = 0
    own: Transform | None = None

    @property
    def is_active(self) -> bool:
        return self != SampleAugmentation()

    def __call__(
        self, images: Iterable[np.ndarray], keys: np.ndarray, size: tuple[int, int]
    ) -> Tensor:
        """uint8 [C,h,w] each and uint64 [N] keys -> uint8 [N,C,*size].

        Raises:
            ValueError: The user's transform makes another shape or type of an image.
        """
        transform, draws = self._transform(size), own_draws(keys, NUM_OWN_DRAWS)
        augmented = []
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)  # of torchvision's draws, whatever the run's is
        try:
            with torch.random.fork_rng(devices=[]):
                for image, key, own in zip(images, keys, draws, strict=True):
                    # the CPU generator alone: torch.manual_seed would also reseed a GPU
                    torch.default_generator.manual_seed(int(key))
                    pixels = transform(torch.from_numpy(np.require(image, requirements="W")))
                    if self.own is not None:
                        pixels = transformed(self.own, pixels, own)
                    augmented.append(pixels)
        finally:
            torch.set_default_dtype(default)
        return torch.stack(augmented)

    def _transform(self, size: tuple[int, int]) -> Callable[[Tensor], Tensor]:
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
        return v2.Compose(steps) if steps else lambda image: image


def transformed(transform: Transform, image: Tensor, draws: np.ndarray) -> Tensor:
    """What the user's transform makes of an image uint8 [C,H,W].

    Raises:
        ValueError: Another shape or type.
    """
    shape, found = image.shape, transform(image, draws)
    if not isinstance(found, Tensor) or found.dtype != torch.uint8 or found.shape != shape:
        is_tensor = isinstance(found, Tensor)
        what = f"{found.dtype} {list(found.shape)}" if is_tensor else type(found).__name__
        raise ValueError(
            f"--data.transform makes {what} of an image torch.uint8 {list(shape)}; expected a "
            "tensor of the same type and shape (round, clamp to 0..255 and .to(torch.uint8); the "
            "network normalises by itself)"
        )
    return found
