"""A network of somebody's with an operator of his own, and its translation to ONNX."""

from typing import Any

import torch
from torch import Tensor, nn


@torch.library.custom_op("strangers::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return x * x * x


@cube.register_fake
def cube_shape(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def slope(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return 3 * x * x * grad


cube.register_autograd(slope, setup_context=keep)


class Cubes(nn.Module):
    """float32 [N,C,H,W] -> logits [N,K]."""

    def __init__(self, in_channels: int, image_size: tuple[int, int], num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(in_channels * image_size[0] * image_size[1], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(torch.ops.strangers.cube(images).flatten(1))


def cube_in_onnx(x: Any) -> Any:
    import onnxscript

    op: Any = onnxscript.opset18
    return op.Mul(op.Mul(x, x), x)


TABLE = {torch.ops.strangers.cube.default: cube_in_onnx}
NO_TABLE = [cube_in_onnx]
WRONG_KEYS = {"strangers::cube": cube_in_onnx}
