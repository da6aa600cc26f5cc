"""Classifies what a box in an image holds: convolutions over the whole image, RoI align, a head.

float32 [N,C,H,W] (normalised pixels) and boxes float32 [N,4] (x1, y1, x2, y2 in pixels of that
image) -> logits float32 [N,K]. It is Fast R-CNN (Girshick 2015) with one given box an image, and
the RoI align of Mask R-CNN (He et al. 2017), an operator of our own (`ops/`).

N batch, C channels, H height, W width, D features, P bins of a box in one axis, K classes.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

STRIDE = 2  # pixels of the image for one of the features


class ROIClassifier(nn.Module):
    """About 100,000 parameters for one channel and 10 classes.

    Args:
        in_channels: Image channels C.
        num_classes: Number of classes K.
        width: Channels after the first convolution; the features D are twice as many.
        pooled_size: Bins P of a box in each axis.
        hidden_features: Features of the hidden linear layer.
        dropout: Probability of dropping a hidden feature.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        width: Annotated[int, ">= 1"] = 16,
        pooled_size: Annotated[int, "1 <= x <= 64"] = 7,
        hidden_features: Annotated[int, ">= 1"] = 64,
        dropout: Annotated[float, "0 <= x < 1"] = 0.25,
    ) -> None:
        super().__init__()
        from ops.roi_align import roi_align  # compiled when it is first used

        self.roi_align, self.pooled_size = roi_align, pooled_size
        self.trunk = nn.Sequential(
            *convolution(in_channels, width), nn.MaxPool2d(STRIDE), *convolution(width, 2 * width)
        )
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(2 * width * pooled_size**2, hidden_features),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_features, num_classes),
        )

    def forward(self, images: Tensor, boxes: Tensor) -> Tensor:
        """float32 [N,C,H,W], float32 [N,4] -> logits float32 [N,K]."""
        features = self.trunk(images)  # [N,D,H/2,W/2]
        return self.head(self.pooled(features, boxes))  # [N,K]

    def pooled(self, features: Tensor, boxes: Tensor) -> Tensor:
        """The features of each image's box, [N,D,P,P].

        At least in float32: in bfloat16 numbers of images from 257 on are not told apart.
        """
        wide = features.to(torch.promote_types(features.dtype, torch.float32))
        index = torch.arange(boxes.shape[0], device=boxes.device, dtype=wide.dtype)
        rois = torch.cat([index[:, None], boxes.to(wide.dtype)], dim=1)  # [N,5]
        size = (self.pooled_size, self.pooled_size)
        return self.roi_align(wide, rois, size, 1 / STRIDE, sampling_ratio=2).to(features.dtype)


def convolution(in_channels: int, out_channels: int) -> list[nn.Module]:
    """[N,in,H,W] -> [N,out,H,W]."""
    return [
        nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    ]
