"""Small convolutional network: two 3x3 convolutions, each with BatchNorm, ReLU and pooling.

float32 [N,C,H,W] (normalised pixels) -> logits float32 [N,K]. The flatten size follows from
`image_size`, so any input of at least 4x4 works.

N batch, C channels, H height, W width, K classes.
"""

import torch
from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Two convolutions and two linear layers; about 207,000 parameters for 1x28x28 and 10 classes.

    Args:
        in_channels: Image channels C.
        image_size: (H, W), both at least 4.
        num_classes: Number of classes K.
        width: Channels after the first convolution; the second has twice as many.
        hidden_features: Features of the hidden linear layer.
        dropout: Probability of dropping a feature before each linear layer.

    Raises:
        ValueError: The image is too small to be halved twice.
    """

    def __init__(
        self,
        in_channels: int,
        image_size: tuple[int, int],
        num_classes: int,
        width: int = 16,
        hidden_features: int = 128,
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        height, image_width = image_size
        if min(height, image_width) < 4:
            raise ValueError(
                f"small_cnn halves its input twice and needs images of at least 4x4 pixels; "
                f"got {height}x{image_width}"
            )
        self.stage1 = conv_stage(in_channels, width)
        self.stage2 = conv_stage(width, 2 * width)
        flat_features = 2 * width * (height // 4) * (image_width // 4)
        self.hidden = nn.Linear(flat_features, hidden_features)
        self.activation = nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden_features, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """float32 [N,C,H,W] -> logits float32 [N,K]."""
        x = self.stage1(images)  # [N, width, H/2, W/2]
        x = self.stage2(x)  # [N, 2*width, H/4, W/4]
        x = torch.flatten(x, 1)  # [N, 2*width*H/4*W/4]
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
