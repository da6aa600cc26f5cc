"""Small convolutional network: 3x3 convolutions, each with BatchNorm, ReLU and pooling.

float32 [N,C,H,W] (normalised pixels) -> logits float32 [N,K]. The flatten size follows from
`image_size`, so any input that can be halved as often as there are stages works.

N batch, C channels, H height, W width, S stages, K classes.
"""

from typing import Annotated

import torch
from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Convolutions and two linear layers; about 207,000 parameters for 1x28x28 and 10 classes.

    Args:
        in_channels: Image channels C.
        image_size: (H, W), both at least 2 to the power of `stages`.
        num_classes: Number of classes K.
        stages: Convolutions S, each followed by pooling.
        width: Channels after the first convolution; each further one has twice as many.
        hidden_features: Features of the hidden linear layer.
        dropout: Probability of dropping a feature before each linear layer.

    Raises:
        ValueError: The image is too small to be halved that often.
    """

    def __init__(
        self,
        in_channels: int,
        image_size: tuple[int, int],
        num_classes: int,
        stages: Annotated[int, ">= 1"] = 2,
        width: Annotated[int, ">= 1"] = 16,
        hidden_features: Annotated[int, ">= 1"] = 128,
        dropout: Annotated[float, "0 <= x < 1"] = 0.25,
    ) -> None:
        super().__init__()
        if min(stages, width, hidden_features) < 1:
            raise ValueError(
                "small_cnn needs --model.stages, --model.width and --model.hidden_features of at "
                f"least 1; got {stages}, {width} and {hidden_features}"
            )
        height, image_width = (side // 2**stages for side in image_size)
        if min(height, image_width) < 1:
            raise ValueError(
                f"small_cnn halves its input {stages} times and needs images of at least "
                f"{2**stages}x{2**stages} pixels; got {image_size[0]}x{image_size[1]}"
            )
        channels = [in_channels, *(width * 2**stage for stage in range(stages))]
        self.stages = nn.Sequential(*map(conv_stage, channels, channels[1:]))
        self.hidden = nn.Linear(channels[-1] * height * image_width, hidden_features)
        self.activation = nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden_features, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """float32 [N,C,H,W] -> logits float32 [N,K]."""
        x = self.stages(images)  # [N, width*2^(S-1), H/2^S, W/2^S]
        x = torch.flatten(x, 1)  # [N, width*2^(S-1)*H/2^S*W/2^S]
        x = self.activation(self.hidden(self.dropout(x)))  # [N, hidden_features]
        return self.head(self.dropout(x))  # [N, K]


def conv_stage(in_channels: int, out_channels: int) -> nn.Sequential:
    """[N,in,H,W] -> [N,out,H/2,W/2]."""
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
