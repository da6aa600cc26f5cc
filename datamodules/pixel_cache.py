"""Reads every picture of a split once: finds unreadable files before training does, notes equal
pictures, and packs the pixels where their size is fixed. What it learned is kept in the cache.

M pictures, C channels, H height, W width.
"""

import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from datamodules.cache_folder import build_once
from datamodules.findings import Finding, note, warning
from datamodules.image_listing import ListedImages
from datamodules.loader_policy import usable_cpus
from datamodules.packed_images import CHUNK, FileImages, ImageSet, PackedImages, pixel_hash
from datamodules.wording import quantity
from preprocessing.images import FORMATS, FULL_RANGE, read_image, resize, to_array

CACHE_FORMAT = 2  # raise it whenever the same files and plan give other pixels or counts
ANIMATED = (".gif", ".webp")  # formats in which several frames are common
SHOWN_FAULTS = 10

FITTED = "picture of another size, fitted"
COUNTED = {
    "fitted": FITTED,
    "animated": "animation, of which the first frame was taken",
    "one_colour": "picture of one colour",
    "transparent": "picture with transparent parts, which became white",
    "outside": "picture with values outside of the range that becomes 0 to 255, which were clipped "
    "(--data.levels sets another range)",
    "deep": "picture of more than 8 bits, unlike those looked at first: its values "
    "{:,} to {:,} became 0 to 255 (--data.levels sets another range)".format(*FULL_RANGE),
    "upper_bits": "picture of 16 bits a colour, of which the upper 8 were read",
}


class Decoded(NamedTuple):
    """What one picture gave."""

    pixels: np.ndarray  # uint8 [C,H,W]
    hash: bytes
    odd: Counter[str]  # see COUNTED


def decode_once(
    images: ListedImages, plan: Mapping[str, Any], pack: bool, cache: Path, skip_unreadable: bool
) -> tuple[ImageSet, list[Finding]]:
    """Reads all pictures, or takes what an earlier run learned about the same files.

    Args:
        images: Paths and labels.
        plan: The preprocessing.
        pack: Keep the pixels; otherwise they are decoded again whenever they are read.
        cache: The cache folder.
        skip_unreadable: Leave unreadable files out instead of failing.

    Returns:
        The readable images, and what was noticed.

    Raises:
        ValueError: Unreadable files, with path and fault.
    """
    key = files_key(images, {**plan, "pack": pack, "format": CACHE_FORMAT})
    build = functools.partial(decode_all, images, plan, pack)
    folder = build_once(cache / "pixels" / key, build)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    findings = [
        # that most pictures are fitted is the plan, not a finding
        (note if what == FITTED and 2 * count >= len(images.paths) else warning)(
            quantity(count, what)
        )
        for key, what in COUNTED.items()
        if (count := report["counts"].get(key))
    ]
    unreadable = report["unreadable"]
    if unreadable:
        faults = "\n  ".join(list(unreadable.values())[:SHOWN_FAULTS])
        more = f"\n  and {len(unreadable) - SHOWN_FAULTS} more"
        faults += more if len(unreadable) > SHOWN_FAULTS else ""
        if not skip_unreadable:
            raise ValueError(
                f"{len(unreadable)} of {len(images.paths)} pictures cannot be read; mend or delete "
                f"them, or leave them out by --data.skip_unreadable true:\n  {faults}"
            )
        left_out = quantity(len(unreadable), "picture left out, as unreadable")
        findings.append(warning(f"{left_out}:\n  {faults}"))
    rows = np.setdiff1d(np.arange(len(images.targets)), [int(row) for row in unreadable])
    hashes, targets = np.load(folder / "hashes.npy")[rows], images.targets[rows]
    if not pack:
        return FileImages(images.paths[rows], targets, plan, hashes), findings
    pixels = np.load(folder / "images.npy", mmap_mode="r")
    return PackedImages(pixels, targets, rows, hashes), findings


def decode_all(images: ListedImages, plan: Mapping[str, Any], pack: bool, folder: Path) -> None:
    """Fills a folder with images.npy (if `pack`), hashes.npy and report.json."""
    count = len(images.paths)
    print(f"reading {count} pictures once, into the cache …", flush=True)
    shape = (count, plan["channels"], plan["height"], plan["width"])
    packed = None
    if pack:
        path = folder / "images.npy"
        packed = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    hashes = np.zeros(count, dtype="S16")
    counts: Counter[str] = Counter()
    unreadable: dict[int, str] = {}
    decode = functools.partial(decode_or_fault, plan)
    with ThreadPoolExecutor(usable_cpus()) as pool:  # Pillow decodes outside the global lock
        for start in range(0, count, CHUNK):
            outcomes = pool.map(decode, images.paths[start : start + CHUNK])
            for row, outcome in enumerate(outcomes, start):
                if isinstance(outcome, str):
                    unreadable[row] = outcome
                    continue
                hashes[row] = outcome.hash
                counts += outcome.odd
                if packed is not None:
                    packed[row] = outcome.pixels
    np.save(folder / "hashes.npy", hashes)
    report = {"unreadable": unreadable, "counts": counts}
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


def decode_or_fault(plan: Mapping[str, Any], path: bytes) -> Decoded | str:
    """Decodes one picture; a fault comes back as its message."""
    name, size = os.fsdecode(path), (plan["height"], plan["width"])
    odd: Counter[str] = Counter()
    try:
        image = read_image(name, plan["channels"], plan.get("levels"), odd)
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    original = to_array(image)
    odd["fitted"] += original.shape[1:] != size
    odd["animated"] += name.lower().endswith(ANIMATED) and is_animated(name)
    odd["one_colour"] += bool((original == original[:, :1, :1]).all())
    fitted = to_array(resize(image, size, plan["resize"], plan["resize_to"]))
    return Decoded(fitted, pixel_hash(original), odd)


def is_animated(path: str) -> bool:
    with Image.open(path, formats=FORMATS) as image:
        return bool(getattr(image, "is_animated", False))


def files_key(images: ListedImages, settings: Mapping[str, Any]) -> str:
    """Changes when a path, a file's size or time, or a setting changes."""
    content = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
    for path in images.paths:
        status = os.stat(path) if os.path.exists(path) else None
        content.update(path + (b"%d %d" % (status.st_size, status.st_mtime_ns) if status else b"-"))
    return content.hexdigest()
