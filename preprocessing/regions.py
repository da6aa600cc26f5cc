"""A region of a picture, given by a box, becomes a model's inputs: alike in training and predictor.

A box is x1, y1, x2, y2 in pixels of the picture as it is stored (upright, see `images.py`); it is
scaled with the picture to the size that the model takes.

C channels, H height, W width.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from preprocessing.images import read_image, resize, to_array


def decode_region(
    source: str | Path | bytes,
    cells: Sequence[Any],
    preprocessing: Mapping[str, Any],
    odd: Counter[str] | None = None,
) -> dict[str, np.ndarray]:
    """One picture and a box in it.

    Args:
        source: A path, or the bytes of a file.
        cells: The box, as numbers or as a table's texts.
        preprocessing: "channels", "height", "width" and "boxes", what the box's cells are called.
        odd: What was odd about the picture is counted in it.

    Returns:
        "images" uint8 [C,H,W] and "boxes" float32 [4].

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a readable picture, or the box is none in it.
    """
    box = numbers(cells, preprocessing["boxes"])
    image = read_image(source, preprocessing["channels"], preprocessing.get("levels"), odd)
    check_box(box, preprocessing["boxes"], image.height, image.width)
    size = preprocessing["height"], preprocessing["width"]
    boxes = scaled_boxes(box[None], (image.height, image.width), size)[0]
    return {"images": to_array(resize(image, size, "exact", None)), "boxes": boxes}


def numbers(cells: Sequence[Any], names: Sequence[str]) -> np.ndarray:
    """Float64 [4] of a table's cells.

    Raises:
        ValueError: One is no number, or not finite.
    """
    found = []
    for name, cell in zip(names, cells, strict=True):
        try:
            number = float(cell)
        except (TypeError, ValueError):
            number = float("nan")
        if isinstance(cell, bool) or not np.isfinite(number):
            raise ValueError(f"{name} is {str(cell)[:40]!r}, expected a number of pixels")
        found.append(number)
    return np.array(found)


def check_box(box: np.ndarray, names: Sequence[str], height: int, width: int) -> None:
    """Refuses a box that is empty, turned round, or not wholly in its picture.

    Raises:
        ValueError: What was found and expected.
    """
    for low, high, end, side in ((0, 2, width, "wide"), (1, 3, height, "high")):
        if not box[low] < box[high]:
            raise ValueError(
                f"{names[high]} is {box[high]:g} and {names[low]} {box[low]:g}: a box has "
                f"{names[low]} below {names[high]}"
            )
        if box[low] < 0 or box[high] > end:
            raise ValueError(
                f"the box reaches from {names[low]} {box[low]:g} to {names[high]} {box[high]:g}, "
                f"and the picture is {end} pixels {side}"
            )


def scaled_boxes(boxes: np.ndarray, picture_size: Sequence[int], size: Sequence[int]) -> np.ndarray:
    """Boxes [N,4] in a picture of (H, W) -> float32 [N,4] in the same picture of another size."""
    factors = [new / old for new, old in zip(size, picture_size, strict=True)]
    return (boxes * np.array([*factors[::-1]] * 2)).astype(np.float32)
