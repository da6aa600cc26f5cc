"""Residual network for small images: He et al. 2015, section 4.2, with projection shortcuts.

float32 [N,C,H,W] (normalised pixels) -> logits float32 [N,K]. One 3x3 convolution, three stages
of residual blocks (the second and third halve the image), global average pooling, a linear layer.

N batch, C channels, H height, W width, D features, K classes.
"""

from typing import Annotated

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """[N,in,H,W] -> [N,out,H/stride,W/stride]: two 3x3 convolutions around a shortcut."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(in_channels, out_channels, stride)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = conv3x3(out_channels, out_channels, 1)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.activation = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return self.activation(y + self.shortcut(x))


class CIFARResNet(nn.Module):
    """ResNet-20 by default; 272,000 parameters for 3 channels and 10 classes.

    Args:
        in_channels: Image channels C.
        num_classes: Number of classes K.
        depth: Layers, 6n + 2 for n blocks a stage.
        width: Channels of the first stage; each later one has twice as many.
        dropout: Probability of dropping a feature before the linear layer.

    Raises:
        ValueError: A depth that is not 6n + 2, or a width below 1.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        depth: Annotated[int, ">= 8"] = 20,
        width: Annotated[int, ">= 1"] = 16,
        dropout: Annotated[float, "0 <= x < 1"] = 0.0,
    ) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if blocks < 1 or rest or width < 1:
            raise ValueError(
                f"cifar_resnet needs --model.depth 6n + 2 (8, 14, 20, 32, 44 …) and --model.width "
                f"of at least 1; got {depth} and {width}"
            )
        self.stem = nn.Sequential(conv3x3(in_channels, width, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.stage1 = stage(width, width, blocks, stride=1)
        self.stage2 = stage(width, 2 * width, blocks, stride=2)
        self.stage3 = stage(2 * width, 4 * width, blocks, stride=2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(4 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """float32 [N,C,H,W] -> logits float32 [N,K]."""
        x = self.stem(images)  # [N, width, H, W]
        x = self.stage1(x)  # [N, width, H, W]
        x = self.stage2(x)  # [N, 2*width, H/2, W/2]
        x = self.stage3(x)  # [N, 4*width, H/4, W/4]
        x = torch.flatten(self.pool(x), 1)  # [N, D = 4*width]
        return self.head(self.dropout(x))  # [N, K]


def conv3x3(in_channels: int, out_channels: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)


def stage(in_channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
    """Blocks of which the first changes size and channels."""
    first = BasicBlock(in_channels, out_channels, stride)
    others = [BasicBlock(out_channels, out_channels, 1) for _ in range(blocks - 1)]
    return nn.Sequential(first, *others)
