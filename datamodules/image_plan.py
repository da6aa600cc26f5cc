"""How every picture of a folder becomes an input, decided by a look at some training pictures."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from datamodules.findings import Finding, note
from datamodules.image_listing import ListedImages
from datamodules.splits import stratified_subset
from preprocessing.images import GREY_16_BIT, MAX_PIXELS, opened

DEFAULT_SIZE = 64  # where pictures differ in size and none is asked for
LARGEST_SIZE = math.isqrt(MAX_PIXELS)
LARGEST_NATIVE = 256  # up to this side, pictures of one common size are taken as they are
PROBED_IMAGES = 64
CROP_SHARE = 224 / 256  # centre crop after scaling, as is usual for ImageNet


class Plan(NamedTuple):
    """What every picture goes through."""

    settings: dict[str, Any]  # the preprocessing of the data contract
    is_native: bool  # pictures are taken in their own size
    findings: list[Finding]


@dataclass(frozen=True)
class PlanOptions:
    """What was asked for, see `ImageFolder`.

    Raises:
        ValueError: It cannot be done, or contradicts itself.
    """

    image_size: int | None = None
    channels: int = 3
    resize: str = "auto"
    resize_to: int | None = None
    weights_resize_to: int | None = None  # of pretrained weights, where nothing was asked for
    levels: Sequence[int] | None = None

    def __post_init__(self) -> None:
        size, scaled, levels = self.image_size, self.resize_to, self.levels
        if size is not None and not 1 <= size <= LARGEST_SIZE:
            raise ValueError(f"--data.image_size must be 1 to {LARGEST_SIZE}, got {size}")
        if scaled is not None and self.resize == "exact":
            raise ValueError("--data.resize_to goes with --data.resize resize_crop, not with exact")
        if scaled is not None and not (size or 1) <= scaled <= LARGEST_SIZE:
            raise ValueError(
                f"--data.resize_to must be {size or 1} to {LARGEST_SIZE}, got {scaled}: the input "
                "is cut out of it"
            )
        if levels is not None and not (len(levels) == 2 and levels[0] < levels[1]):
            raise ValueError(
                f"--data.levels must be the lowest and the highest value, got {list(levels)}"
            )


def make_plan(train: ListedImages, options: PlanOptions) -> Plan:
    """Chooses size, cut and range of values for the training pictures."""
    sizes, levels = look_at_some(train)
    notes: list[str] = []
    common = next(iter(sizes)) if len(sizes) == 1 else None
    height = width = options.image_size or DEFAULT_SIZE
    if options.image_size is None and common and max(common) <= LARGEST_NATIVE:
        height, width = common
    elif options.image_size is None:
        notes.append(
            f"pictures differ in size or are large; they become {height}x{width} "
            "(--data.image_size chooses another size)"
        )
    as_asked = options.resize != "auto" or options.resize_to is not None
    is_native = sizes == {(height, width)} and not as_asked
    settings: dict[str, Any] = {
        "kind": "image",
        "channels": options.channels,
        "height": height,
        "width": width,
        "resize": "exact" if options.resize == "exact" else "resize_crop",
        "resize_to": None,
    }
    if settings["resize"] == "resize_crop" and not is_native:
        usual = options.weights_resize_to or round(max(height, width) / CROP_SHARE)
        settings["resize_to"] = usual if options.resize_to is None else options.resize_to
        if settings["resize_to"] < max(height, width):
            raise ValueError(
                f"--data.resize_to {options.resize_to} is smaller than the {height}x{width} that "
                "are cut out of it; raise it, or lower --data.image_size"
            )
    if chosen := options.levels or levels:
        settings["levels"] = low, high = list(chosen)
        become = f"their values {low:,} to {high:,} become 0 to 255"
        if options.levels:
            rarely = "" if levels else ", of which those looked at first are none"
            notes.append(f"pictures of more than 8 bits{rarely}: {become}, as --data.levels says")
        else:
            notes.append(
                f"pictures of more than 8 bits: {become} (--data.levels sets another range)"
            )
    return Plan(settings, is_native, [*map(note, notes)])


def look_at_some(train: ListedImages) -> tuple[set[tuple[int, int]], list[int] | None]:
    """Sizes (H, W) and the range of values of more than 8 bits, over a few pictures."""
    sizes, values = set(), []
    for row in stratified_subset(train.targets, PROBED_IMAGES):
        try:
            with opened(os.fsdecode(train.paths[row])) as (image, _):
                sizes.add((image.height, image.width))
                if image.mode in GREY_16_BIT:
                    pixels = np.asarray(image)
                    values += [int(pixels.min()), int(pixels.max())]
        except (ValueError, FileNotFoundError):
            continue  # reported with all others when every picture is read
    return sizes, wide_range(min(values), max(values)) if values else None


def wide_range(low: int, high: int) -> list[int] | None:
    """The range to scale by: all of a number of bits that the values nearly fill, else theirs."""
    full = 2 ** max(high, 1).bit_length() - 1
    if low >= 0 and 2 * (high - low) >= full:
        return [0, full]
    return [low, high] if low < high else None
