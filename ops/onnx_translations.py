"""Our operators in ONNX's own, for torch's exporter: {operator: function of onnxscript}."""

from collections.abc import Callable
from typing import Any

import torch

import ops.roi_align  # noqa: F401  # registers the operator


def roi_align(
    input: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    """foundry::roi_align -> RoiAlign, which takes the index of the image apart from the box."""
    import onnxscript

    op: Any = onnxscript.opset18
    index, boxes = op.Slice(rois, [0], [1], [1]), op.Slice(rois, [1], [5], [1])
    return op.RoiAlign(
        input,
        boxes,
        op.Cast(op.Squeeze(index, [1]), to=7),  # int64
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        mode="avg",
        output_height=pooled_height,
        output_width=pooled_width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=spatial_scale,
    )


TABLE: dict[Any, Callable[..., Any]] = {torch.ops.foundry.roi_align.default: roi_align}
