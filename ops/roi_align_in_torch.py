"""roi_align by torch's own operations, for machines on which C++ cannot be compiled.

The same sums as in `csrc/roi_align_cpu.cpp`: along the height first, then along the width.

R boxes, N images, C channels, H height, W width, PH x PW bins, S samples of a bin in one axis.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

RULES = torch.library.Library("foundry", "FRAGMENT")
MAX_SAMPLING_RATIO = 1024
MAX_INDEX = 1e9  # of a sample in its bin: beyond it one is not told from the next


def register() -> None:
    """Registers it under the names that the compiled one would have."""
    forward = torch.library.custom_op("foundry::roi_align", pool, mutates_args=())
    backward = torch.library.custom_op("foundry::_roi_align_backward", spread, mutates_args=())
    forward.register_fake(pooled_shape)
    backward.register_fake(spread_shape)
    forward.register_autograd(gradient_of_input, setup_context=keep_forward)
    backward.register_autograd(gradient_of_gradient, setup_context=keep_backward)
    for key, device in (("AutocastCPU", "cpu"), ("AutocastCUDA", "cuda")):
        RULES.impl("roi_align", functools.partial(in_single_precision, device), key)


# ---- forward and backward -----------------------------------------------------------------


def pool(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """[N,C,H,W] and [R,5] -> [R,C,PH,PW]; see `ops.roi_align`."""
    check_forward(input, rois, pooled_height, pooled_width, sampling_ratio)
    wide = torch.promote_types(input.dtype, torch.float32)
    planes, size = input.to(wide), (pooled_height, pooled_width)
    output = planes.new_zeros((len(rois), input.shape[1], *size))
    settings = spatial_scale, size, input.shape[2:], sampling_ratio, aligned
    for index, (image, rows, columns) in enumerate(boxes_of(rois.to(wide), len(input), *settings)):
        lines = rows.weighted(planes[image][:, rows.pixels], -2).sum(2)  # [C,PH,2S,W] -> [C,PH,W]
        output[index] = columns.weighted(lines[:, :, columns.pixels], -1).sum(3)  # [C,PH,PW,2S]
    return output.to(input.dtype)


def spread(
    grad: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """The gradient of the output [R,C,PH,PW] -> that of the input [N,C,H,W]."""
    check_backward(grad, rois, pooled_height, pooled_width, channels, sampling_ratio)
    wide = torch.promote_types(grad.dtype, torch.float32)
    result = grad.new_zeros((batch, channels, height, width), dtype=wide)
    settings = spatial_scale, (pooled_height, pooled_width), (height, width), sampling_ratio
    for index, (image, rows, columns) in enumerate(
        boxes_of(rois.to(wide), batch, *settings, aligned)
    ):
        values = columns.weighted(grad[index].to(wide)[..., None], -1)  # [C,PH,PW,2S]
        lines = result.new_zeros((channels, pooled_height, width))
        lines.index_add_(2, columns.pixels.flatten(), values.flatten(2))
        values = rows.weighted(lines[:, :, None], -2)  # [C,PH,2S,W]
        result[image].index_add_(1, rows.pixels.flatten(), values.flatten(1, 2))
    return result.to(grad.dtype)


def in_single_precision(device: str, input: Tensor, rois: Tensor, *settings: Any) -> Tensor:
    """The rule for autocast: positions need the bits of float32."""
    with torch.autocast(device, enabled=False):
        found = torch.ops.foundry.roi_align(input.float(), rois.float(), *settings)
    return found.to(input.dtype)


# ---- boxes --------------------------------------------------------------------------------


class Shares(NamedTuple):
    """For each bin of one axis, of so many bins B: the pixels it touches, and the share of each."""

    pixels: Tensor  # int64 [B,2S]
    weights: Tensor  # float [B,2S]
    is_there: Tensor  # bool [B,2S], else the bin has fewer

    def weighted(self, values: Tensor, axis: int) -> Tensor:
        """Values of which `axis` has 2S entries, and the axis before it B, times their weights."""
        shape = (*self.weights.shape, *[1] * (-1 - axis))
        weights, is_there = self.weights.view(shape), self.is_there.view(shape)
        return (values * weights).masked_fill(~is_there, 0)


def boxes_of(
    rois: Tensor,
    batch: int,
    spatial_scale: float,
    pooled_size: tuple[int, int],
    image_size: Sequence[int],
    sampling_ratio: int,
    aligned: bool,
) -> list[tuple[int, Shares, Shares]]:
    """Image, rows and columns of each box."""
    found = []
    for index, (image, x1, y1, x2, y2) in enumerate(rois.unbind(0)):
        if not 0 <= float(image) < batch:
            raise ValueError(
                f"roi_align: rois[{index}, 0] is the index of an image, 0 to {batch - 1}, got "
                f"{float(image):g}"
            )
        rows, columns = (
            shares(start * spatial_scale, end * spatial_scale, bins, size, sampling_ratio, aligned)
            for start, end, bins, size in zip(
                (y1, x1), (y2, x2), pooled_size, image_size, strict=True
            )
        )
        found.append((int(image), rows, columns))
    return found


def shares(
    start: Tensor, end: Tensor, num_bins: int, size: int, sampling_ratio: int, aligned: bool
) -> Shares:
    """One axis of a box from `start` to `end`, over an image of that size."""
    start, end = (start - 0.5, end - 0.5) if aligned else (start, end)
    length = end - start
    if not aligned and length < 1 and length.isfinite():
        length = torch.ones_like(length)
    bin_size = length / num_bins
    count = torch.tensor(float(sampling_ratio)) if sampling_ratio > 0 else bin_size.double().ceil()
    bins = torch.arange(num_bins, device=start.device)
    first_edges = start + bins.to(start) * bin_size  # [B]
    step = bin_size.double() / count
    first, last = torch.zeros(num_bins, dtype=torch.float64), count.double() - 1
    if step > 0:  # beyond these, a huge box would have too many
        edges = first_edges.double()
        first = first.to(edges).maximum(((-1 - edges) / step - 0.5).floor() - 1)
        last = ((size - edges) / step - 0.5).ceil().add(1).minimum(last)
    else:  # a box that is turned round, with the samples asked for, or not finite
        last = last.where(last < MAX_SAMPLING_RATIO, first[0] - 1)
    last = last.expand(num_bins).where(first < MAX_INDEX, first - 1)
    num_samples = float((last - first).max()) + 1 if size else 0.0
    num_samples = int(num_samples) if num_samples > 0 else 0  # NaN as well
    samples = first.to(start.device)[:, None] + torch.arange(num_samples, device=start.device)
    offsets = (samples + 0.5).to(start) * bin_size / count.to(start)
    position = first_edges[:, None] + offsets  # [B,S]
    is_near = (position >= -1) & (position <= size) & (samples <= last[:, None])
    position = position.where(is_near, torch.zeros(())).clamp(min=0)
    low = position.long().clamp(max=max(size - 1, 0))
    high = (low + 1).clamp(max=max(size - 1, 0))
    share = (position - low).where(low < size - 1, torch.zeros(()))
    pixels = torch.cat([low, high], dim=1)
    weights = torch.cat([1 - share, share], dim=1) / count.to(start).clamp(min=1)
    return Shares(pixels, weights, is_near.repeat(1, 2))


# ---- gradients: both directions are linear, so each is the other's --------------------------


def keep_forward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.settings, ctx.shape = inputs[2:], inputs[0].shape


def gradient_of_input(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    scale, height, width, *rest = ctx.settings
    sizes = (scale, height, width, *ctx.shape, *rest)
    result = torch.ops.foundry._roi_align_backward(grad, *ctx.saved_tensors, *sizes)
    return result, *[None] * 6


def keep_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.settings = inputs[2:]


def gradient_of_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    scale, height, width, *_, sampling_ratio, aligned = ctx.settings
    settings = (scale, height, width, sampling_ratio, aligned)
    return torch.ops.foundry.roi_align(grad, *ctx.saved_tensors, *settings), *[None] * 10


# ---- shapes, and the messages of csrc/roi_align.cpp ------------------------------------------


def pooled_shape(
    input: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Tensor:
    check_forward(input, rois, height, width, ratio)
    return input.new_empty((rois.shape[0], input.shape[1], height, width))


def spread_shape(grad: Tensor, rois: Tensor, scale: float, *sizes: int) -> Tensor:
    pooled_height, pooled_width, *shape, ratio, _ = sizes
    check_backward(grad, rois, pooled_height, pooled_width, shape[1], ratio)
    return grad.new_empty(shape)


def check_forward(input: Tensor, rois: Tensor, height: int, width: int, ratio: int) -> None:
    if input.ndim != 4:
        raise ValueError(f"roi_align: input must be [N,C,H,W], got {list(input.shape)}")
    check_rois(rois, "input", input)
    check_settings(height, width, ratio)


def check_backward(
    grad: Tensor, rois: Tensor, height: int, width: int, channels: int, ratio: int
) -> None:
    check_rois(rois, "the gradient", grad)
    check_settings(height, width, ratio)
    expected = [rois.shape[0], channels, height, width]
    if list(grad.shape) != expected:
        raise ValueError(
            f"roi_align: the gradient must be [R,C,PH,PW] = {expected}, got {list(grad.shape)}"
        )


def check_rois(rois: Tensor, name: str, other: Tensor) -> None:
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise ValueError(
            "roi_align: rois must be [R,5] (index of the image, x1, y1, x2, y2), got "
            f"{list(rois.shape)}"
        )
    if not other.is_floating_point():
        raise ValueError(f"roi_align: {name} must be of a floating-point type, got {other.dtype}")
    for what, got, expected in (
        ("of the type of", rois.dtype, other.dtype),
        ("on the device of", rois.device, other.device),
    ):
        if got != expected:
            raise ValueError(f"roi_align: rois must be {what} {name}, {expected}, got {got}")


def check_settings(height: int, width: int, ratio: int) -> None:
    if height < 1 or width < 1:
        raise ValueError(f"roi_align: the pooled size must be at least 1x1, got {height}x{width}")
    if ratio > MAX_SAMPLING_RATIO:
        raise ValueError(
            f"roi_align: sampling_ratio must be at most {MAX_SAMPLING_RATIO}, got {ratio}"
        )
