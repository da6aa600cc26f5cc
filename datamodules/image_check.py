"""What the data check looks for in images: pictures that show nothing, odd files, equal ones.

M images of a split, C channels, H height, W width.
"""

import functools
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from PIL import Image

from datamodules.findings import Finding, error, warning
from datamodules.full_check import shown
from datamodules.image_listing import ListedImages
from datamodules.image_splits import ImageSplits
from datamodules.loader_policy import usable_cpus
from datamodules.packed_images import CHUNK, PackedImages, pixel_hash
from datamodules.splits import SPLITS, conflicting_pairs, stratified_subset
from datamodules.wording import listing
from preprocessing.images import FORMATS, read_image, to_array

SMALLEST_SIDE = 8  # pixels of a picture
LARGEST_ASPECT = 4
FAST_IMAGES = 2000
USUAL_MODES = ("1", "L", "RGB")


def look_at_pixels(splits: ImageSplits, full: bool) -> Iterator[Finding]:
    """Images that are all the same, or of one colour; unless `full`, among some of each split."""
    if len(np.unique(splits.train.hashes)) == 1:
        yield error(f"all {len(splits.train)} training images are the same picture")
    for name in SPLITS:
        images = splits[name]
        # pixels with known hashes were looked at when their files were read
        if isinstance(images, PackedImages) and images.known_hashes is None:
            rows = stratified_subset(images.targets, None if full else FAST_IMAGES)
            if count := num_of_one_colour(images, rows):
                yield warning(f"{name}: {count} of {len(rows)} images are of one colour")


def num_of_one_colour(images: PackedImages, rows: np.ndarray) -> int:
    count = 0
    for start in range(0, len(rows), CHUNK):
        pixels = images.read(rows[start : start + CHUNK])  # [N,C,H,W]
        flat = pixels.reshape(*pixels.shape[:2], -1)
        count += int((flat.max(2) == flat.min(2)).all(1).sum())
    return count


def read_pictures(listed: ListedImages, plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """Decodes every picture file; returns its "errors" and "warnings"."""
    names = [os.fsdecode(path) for path in listed.paths]
    hashes = np.zeros(len(names), "S16")
    broken: list[str] = []
    odd: defaultdict[str, list[str]] = defaultdict(list)
    look = functools.partial(look_at, plan=plan)
    with ThreadPoolExecutor(usable_cpus()) as pool:  # Pillow decodes outside the global lock
        chunks = (names[start : start + CHUNK] for start in range(0, len(names), CHUNK))
        outcomes = (outcome for some in chunks for outcome in pool.map(look, some))
        for row, outcome in enumerate(shown(outcomes, len(names))):
            if isinstance(outcome, str):
                broken.append(outcome)
                continue
            hashes[row], oddities = outcome
            for oddity in oddities:
                odd[oddity].append(names[row])
    warnings = [f"{len(f)} pictures {what}: {listing(f, 3)}" for what, f in sorted(odd.items())]
    pairs = [pair for pair in conflicting_pairs(hashes, listed.targets) if hashes[pair[0]]]
    if pairs:
        equal = listing([f"{names[first]} = {names[second]}" for first, second in pairs], 3)
        warnings.append(f"{len(pairs)} equal pictures lie in different classes: {equal}")
    return {"errors": broken, "warnings": warnings}


def look_at(name: str, plan: Mapping[str, Any]) -> tuple[bytes, list[str]] | str:
    """Hash of a picture's pixels and what is odd about its file; a fault comes as its message."""
    try:
        pixels = to_array(read_image(name, plan["channels"], plan.get("levels")))
        with Image.open(name, formats=FORMATS) as image:
            form, mode, sides = image.format, image.mode, image.size
    except (ValueError, OSError) as fault:
        return str(fault)
    usual = Image.registered_extensions().get(os.path.splitext(name)[1].lower())
    odd = {
        f"hold {form} in spite of their suffix": form not in (usual, "MPO"),
        f"are of mode {mode}": mode not in USUAL_MODES,
        f"have a side below {SMALLEST_SIDE} pixels": min(sides) < SMALLEST_SIDE,
        f"are over {LARGEST_ASPECT} times as long as wide": max(sides)
        > LARGEST_ASPECT * min(sides),
    }
    return pixel_hash(pixels), [what for what, is_so in odd.items() if is_so]
