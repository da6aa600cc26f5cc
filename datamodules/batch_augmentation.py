"""Augmentation of a whole batch at once, on the device, with independent draws a sample.

The draws come from the loader (a function of seed, epoch and sample); here they only become
pixels. Mixup and CutMix take the second image from the neighbour in the (shuffled) batch.

N batch, C channels, H height, W width, K classes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

ERASED_AREA = (0.02, 1 / 3)  # share of the image
ERASED_LOG_RATIO = float(np.log(3.3))  # height : width lies within 1:3.3 and 3.3:1
TABLE_SIZE = 4096


@dataclass(frozen=True)
class BatchAugmentation:
    """Padded random crop, flip, erasing (Zhong et al. 2017), mixup (Zhang et al. 2018), CutMix
    (Yun et al. 2019); see `ImageDataModule`. With both of the last on, each image gets one.
    """

    crop_padding: int = 0
    horizontal_flip: bool = False
    erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    num_draws = 12  # crop 0:2, flip 2, erasing 3:8, which mix 8, share 9, CutMix place 10:12

    @property
    def is_active(self) -> bool:
        return self != BatchAugmentation()

    @cached_property
    def beta_tables(self) -> Tensor:
        """Quantiles of Beta(alpha, alpha) for mixup and CutMix, float32 [2, TABLE_SIZE]."""
        return torch.stack([beta_quantiles(self.mixup), beta_quantiles(self.cutmix)])

    def __call__(
        self, images: Tensor, targets: Tensor, draws: Tensor, num_classes: int
    ) -> tuple[Tensor, Tensor]:
        """uint8 [N,C,H,W], int64 [N], draws float32 [N, num_draws] in [0,1) -> images, targets.

        Targets stay int64 [N], or become shares float32 [N,K] where mixup or CutMix is on.
        """
        if self.crop_padding:
            images = padded_crop(images, draws[:, :2], self.crop_padding)
        if self.horizontal_flip:
            images = torch.where(per_image(draws[:, 2] < 0.5), images.flip(3), images)
        if self.erasing:
            images = erase(images, draws[:, 3:8], self.erasing)
        if self.mixup or self.cutmix:
            return self.mix(images, targets, draws[:, 8:12], num_classes)
        return images, targets

    def mix(
        self, images: Tensor, targets: Tensor, draws: Tensor, num_classes: int
    ) -> tuple[Tensor, Tensor]:
        """Mixes each image [C,H,W] and its target with its neighbour's."""
        by_box = draws[:, 0] < (0.5 if self.mixup and self.cutmix else float(self.cutmix > 0))
        place = (draws[:, 1] * TABLE_SIZE).long()
        share = self.beta_tables.to(images.device)[by_box.long(), place]  # [N], of the own image
        side = (1 - share).sqrt()
        box = boxes(images, side, side, draws[:, 2:4])  # [N,H,W], where the neighbour shows
        share = torch.where(by_box, 1 - box.float().mean(dim=(1, 2)), share)
        weight = torch.where(per_image(by_box), 1 - box[:, None].float(), per_image(share))
        own, other = images.float(), images.roll(1, dims=0).float()
        mixed = (own * weight + other * (1 - weight)).round().to(images.dtype)
        shares = torch.nn.functional.one_hot(targets, num_classes).float()  # [N,K]
        return mixed, shares * share[:, None] + shares.roll(1, dims=0) * (1 - share[:, None])


def per_image(values: Tensor) -> Tensor:
    """[N] -> [N,1,1,1]."""
    return values[:, None, None, None]


def padded_crop(images: Tensor, draws: Tensor, padding: int) -> Tensor:
    """Crops [H,W] out of each zero-padded image at the place its two draws name."""
    padded = torch.nn.functional.pad(images, [padding] * 4)
    offsets = (draws * (2 * padding + 1)).long()  # [N,2] in 0..2*padding
    axes = [torch.arange(size, device=images.device) for size in images.shape]
    return padded[
        axes[0][:, None, None, None],
        axes[1][:, None, None],
        (offsets[:, 0, None] + axes[2])[:, None, :, None],  # rows
        (offsets[:, 1, None] + axes[3])[:, None, None, :],  # columns
    ]


def erase(images: Tensor, draws: Tensor, probability: float) -> Tensor:
    """Fills one box in the chosen images; draws [N,5]: chosen, area, ratio, row, column."""
    area = ERASED_AREA[0] + draws[:, 1] * (ERASED_AREA[1] - ERASED_AREA[0])
    ratio = ((2 * draws[:, 2] - 1) * ERASED_LOG_RATIO).exp()
    box = boxes(images, (area * ratio).sqrt(), (area / ratio).sqrt(), draws[:, 3:5])
    box &= (draws[:, 0] < probability)[:, None, None]
    mean = images.float().mean(dim=(2, 3), keepdim=True).round().to(images.dtype)  # [N,C,1,1]
    return torch.where(box[:, None], mean, images)


def boxes(images: Tensor, heights: Tensor, widths: Tensor, draws: Tensor) -> Tensor:
    """bool [N,H,W], true inside one box an image.

    Args:
        images: [N,C,H,W], for its size.
        heights: Height of each box as a share of H, [N]; cut to the image.
        widths: Likewise of W.
        draws: Row and column of the box among the places where it fits, [N,2].
    """
    inside = []
    for axis, (length, share) in enumerate(zip(images.shape[2:], (heights, widths), strict=True)):
        size = (share.clamp(max=1) * length).round()
        start = (draws[:, axis] * (length - size + 1)).floor()[:, None]
        position = torch.arange(length, device=images.device)
        inside.append((position >= start) & (position < start + size[:, None]))  # [N,length]
    return inside[0][:, :, None] & inside[1][:, None, :]


def beta_quantiles(alpha: float) -> Tensor:
    """Quantiles of the symmetric Beta distribution at TABLE_SIZE equal steps.

    They are read off a large fixed sample: there is no closed form, and a table turns one uniform
    draw of the loader into one draw of Beta on any device.
    """
    if not alpha:
        return torch.ones(TABLE_SIZE, dtype=torch.float32)
    sample = np.random.default_rng(0).beta(alpha, alpha, size=2**19)
    steps = (np.arange(TABLE_SIZE) + 0.5) / TABLE_SIZE
    return torch.from_numpy(np.quantile(sample, steps).astype(np.float32))
