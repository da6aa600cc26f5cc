"""RoI align: a fixed number of features for a box of any size (He et al. 2017, Mask R-CNN).

Compiled from C++ (`csrc/`) where that is possible, with the gradient, shapes and rule for autocast
registered there; elsewhere an implementation of torch's operations takes its place, under the same
name, `torch.ops.foundry.roi_align`, with the same results. So exports look alike either way.

R boxes, N images, C channels, H height, W width, PH x PW bins, S samples of a bin in one axis.
"""

from pathlib import Path

import torch
from torch import Tensor

from ops.library import NoLibrary, load, say
from ops.roi_align_in_torch import register

LIBRARY: Path | None = None  # the compiled one
try:
    LIBRARY = load()
except NoLibrary as reason:
    say(f"roi_align is computed by torch's own operations, more slowly: {reason}")
    register()


def roi_align(
    input: Tensor,
    rois: Tensor,
    output_size: tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool = True,
) -> Tensor:
    """Mean of bilinear samples in each bin of each box.

    A sample that lies more than a pixel outside of its image gives 0, as does a box that is not
    finite. The gradient goes to the input, and through it again; boxes get none.

    Args:
        input: float [N,C,H,W].
        rois: Boxes of the type and on the device of `input`, [R,5]: index of the image, then x1,
            y1, x2, y2 in pixels of the original.
        output_size: PH, PW.
        spatial_scale: Size of `input` as a share of the original's.
        sampling_ratio: S; 0 or less takes as many as a bin is wide in pixels.
        aligned: Pixels have their centres at a half (Detectron2's version); else a box is at least
            one pixel wide, and lies half a pixel further.

    Returns:
        [R,C,PH,PW], contiguous.

    Raises:
        ValueError: A shape, type, device or size that does not fit, or an index without an image
            (on a GPU, where that is found too late for an exception, a kernel's assertion).
    """
    height, width = output_size
    return torch.ops.foundry.roi_align(
        input, rois, spatial_scale, height, width, sampling_ratio, aligned
    )
