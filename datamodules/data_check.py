"""A look at the data before the first step: errors would make the run worthless, warnings may.

"fast" looks at what the datamodule holds already. "full" also reads every file and all pixels or
tokens once more; what it learned of the files stays in the cache until the data changes.

M samples of a split, C channels, H height, W width.
"""

import functools
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import track
from rich.table import Table

from datamodules.cache_folder import build_once, cache_folder
from datamodules.image_datamodule import ImageDataModule
from datamodules.image_folder import ImageFolder
from datamodules.image_listing import ListedImages
from datamodules.image_splits import Finding, listing
from datamodules.label_spelling import spelling_findings
from datamodules.loader_policy import usable_cpus
from datamodules.packed_images import CHUNK, PackedImages, pixel_hash
from datamodules.pixel_cache import files_key
from datamodules.splits import SPLITS, conflicting_pairs, stratified_subset
from datamodules.text_datamodule import TextDataModule
from datamodules.wording import printable
from preprocessing.images import FORMATS, read_image, to_array
from preprocessing.text import TextTokenizer

CHECK_FORMAT = 2  # raise it whenever `read_pictures` or `read_texts` look for something else
FEWEST = {"train": 10, "val": 5, "test": 5}  # samples of a class
LARGEST_IMBALANCE = 10
LARGEST_UNKNOWN_SHARE = 0.1
SMALLEST_SIDE = 8  # pixels of a picture
LARGEST_ASPECT = 4
FAST_IMAGES = 2000
FAST_BLOCKS, BLOCK = 16, 1 << 16  # tokens of a split that are counted in a fast check
USUAL_MODES = ("1", "L", "RGB")
TRACES = {  # of a wrong encoding
    "replacement characters (U+FFFD)": re.compile("\ufffd"),
    "control characters": re.compile("[\x01-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"),
}


@dataclass
class DataCheck:
    """What was looked at, and what was found."""

    summary: str
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_data(data: Any, level: str | bool, folder: Path | None) -> None:
    """Prints the findings, and writes them to data_check.json in the run folder.

    Args:
        data: A datamodule after its setup; of a foreign class, only its contract is looked at.
        level: "fast", "full" or "off".
        folder: The run folder, or None.

    Raises:
        ValueError: What would make the run worthless.
    """
    if level in ("off", False):
        return
    found = DataCheck(f"{len(data.train_targets):,} training samples")
    check_values(data, found)
    if isinstance(data, ImageDataModule):
        targets = {name: data.splits[name].targets for name in SPLITS}
        check_images(data, level == "full", found)
    elif isinstance(data, TextDataModule):
        targets = {name: split.targets for name, split in data.corpus.splits.items()}
        check_texts(data, level == "full", found)
    else:
        targets = {"train": data.train_targets}
    check_classes(targets, data.class_names, isinstance(data, TextDataModule), found)
    found.errors = [*map(printable, found.errors)]
    found.warnings = [*map(printable, found.warnings)]
    if folder is not None:
        text = json.dumps({"level": level, **asdict(found)}, indent=2, ensure_ascii=False)
        (folder / "data_check.json").write_text(text + "\n", encoding="utf-8")
    show(found)
    if found.errors:
        raise ValueError(
            "the data cannot be trained on (--check_data off does it all the same):\n  "
            + "\n  ".join(found.errors)
        )


def show(found: DataCheck) -> None:
    """One line, or one table with the errors apart from the warnings."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not found.errors and not found.warnings:
        console.print(f"data check: {found.summary}, nothing found")
        return
    counts = f"{len(found.errors)} errors, {len(found.warnings)} warnings"
    console.print(f"data check: {found.summary}, {counts}")
    if console.is_terminal:
        table = Table(box=None, show_header=False, pad_edge=False)
        for kind, style in (("error", "red"), ("warning", "yellow")):
            for text in getattr(found, f"{kind}s"):
                table.add_row(kind, text, style=style)
            table.add_section()
        console.print(table)
    else:
        for text in found.errors:
            console.print(f"  error    {text}")
        for text in found.warnings:
            console.print(f"  warning  {text}")


def shown(items: Iterable[Any], total: int) -> Iterable[Any]:
    """The items, with a progress bar where somebody looks."""
    console = Console(stderr=True)
    off = not console.is_terminal
    return track(items, "data check", total, console=console, transient=True, disable=off)


def remembered(folder: Path, look: Callable[[], dict[str, list[str]]]) -> dict[str, list[str]]:
    """The errors and warnings of a check that takes long, from the cache where it was made."""

    def build(target: Path) -> None:
        (target / "report.json").write_text(json.dumps(look()), encoding="utf-8")

    report = build_once(folder, build) / "report.json"
    return json.loads(report.read_text(encoding="utf-8"))


# ---- any data -----------------------------------------------------------------------------


def check_values(data: Any, found: DataCheck) -> None:
    """NaN and infinity, in a batch and in what normalises it."""
    inputs, _ = data.example_batch()
    for values in inputs if isinstance(inputs, tuple) else (inputs,):
        bad = int((~values.isfinite()).sum())
        if bad:
            found.errors.append(f"{bad} of {values.numel()} values of a batch are not finite")
    for name, channels in (data.normalisation if data.kind == "image" else {}).items():
        if not np.isfinite(channels).all():
            found.errors.append(f"the {name} that images are normalised with is {channels}")


def check_classes(
    targets: Mapping[str, np.ndarray], names: list[str], can_join: bool, found: DataCheck
) -> None:
    """Classes with too few samples, unequal ones, and those that may be one or several."""
    found.summary += f", {len(names)} classes"
    for split, labels in targets.items():
        counts = np.bincount(labels, minlength=len(names))
        few = np.flatnonzero((counts > 0) & (counts < FEWEST[split]))
        if len(few):
            listed = listing([f"{names[label]} {counts[label]}" for label in few], 5)
            found.warnings.append(
                f"{split}: fewer than {FEWEST[split]} samples of {len(few)} classes ({listed})"
            )
    counts = np.bincount(targets["train"], minlength=len(names))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] > LARGEST_IMBALANCE * counts[least]:
        found.warnings.append(
            f"train: {counts[most]:,} samples of {names[most]}, but {counts[least]:,} of "
            f"{names[least]}; --loss.class_weights balanced weighs all classes alike"
        )
    found.warnings += spelling_findings(dict(zip(names, counts.tolist(), strict=True)), can_join)


# ---- images -------------------------------------------------------------------------------


def check_images(data: ImageDataModule, full: bool, found: DataCheck) -> None:
    """What the datamodule noticed, pictures that show nothing and, if `full`, every file."""
    splits = data.splits
    count = sum(len(splits[name]) for name in SPLITS)
    found.summary = f"{count:,} images"
    found.warnings += [note for note in data.notes if isinstance(note, Finding)]
    data.notes = [note for note in data.notes if not isinstance(note, Finding)]
    if len(np.unique(splits.train.hashes)) == 1:
        found.errors.append(f"all {len(splits.train)} training images are the same picture")
    for name in SPLITS:
        images = splits[name]
        # pixels with known hashes were looked at when their files were read
        if isinstance(images, PackedImages) and images.known_hashes is None:
            check_pixels(name, images, full, found)
    if full and isinstance(data, ImageFolder):
        cache = cache_folder(data.cache_dir)
        parts = data.find_images(cache).splits.values()
        listed = ListedImages(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        key = files_key(listed, {"fingerprint": data.fingerprint, "format": CHECK_FORMAT})
        report = remembered(cache / "checks" / key, lambda: read_pictures(listed, data.plan))
        found.errors += [] if data.skip_unreadable else report["errors"]
        found.warnings += report["warnings"]


def check_pixels(name: str, images: PackedImages, full: bool, found: DataCheck) -> None:
    """Counts images of one colour."""
    rows = stratified_subset(images.targets, None if full else FAST_IMAGES)
    count = 0
    for start in range(0, len(rows), CHUNK):
        pixels = images.read(rows[start : start + CHUNK])  # [N,C,H,W]
        flat = pixels.reshape(*pixels.shape[:2], -1)
        count += int((flat.max(2) == flat.min(2)).all(1).sum())
    if count:
        found.warnings.append(f"{name}: {count} of {len(rows)} images are of one colour")


def read_pictures(listed: ListedImages, plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """Decodes every picture file."""
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
    except (ValueError, OSError) as error:
        return str(error)
    usual = Image.registered_extensions().get(os.path.splitext(name)[1].lower())
    odd = {
        f"hold {form} in spite of their suffix": form not in (usual, "MPO"),
        f"are of mode {mode}": mode not in USUAL_MODES,
        f"have a side below {SMALLEST_SIDE} pixels": min(sides) < SMALLEST_SIDE,
        f"are over {LARGEST_ASPECT} times as long as wide": max(sides)
        > LARGEST_ASPECT * min(sides),
    }
    return pixel_hash(pixels), [what for what, is_so in odd.items() if is_so]


# ---- texts --------------------------------------------------------------------------------


def check_texts(data: TextDataModule, full: bool, found: DataCheck) -> None:
    """What the corpus noticed, words without an id and, if `full`, every text once more."""
    corpus = data.corpus
    found.summary = f"{sum(map(len, corpus.splits.values())):,} texts"
    found.warnings += corpus.notes
    data.notes = [note for note in data.notes if note not in corpus.notes]
    unknown = TextTokenizer(corpus.definition).empty_id
    for name, split in corpus.splits.items():
        missing = np.setdiff1d(np.arange(len(corpus.class_names)), split.targets)
        if len(missing):
            listed = listing([corpus.class_names[label] for label in missing], 5)
            found.warnings.append(f"{name} has no texts of {listed}")
        share = share_of(unknown, split.ids, full) if unknown else 0.0
        if share == 1 and name == "train":
            found.errors.append("no word of train is in the vocabulary: all are read as <unk>")
        elif share > LARGEST_UNKNOWN_SHARE:
            found.warnings.append(f"{name}: {share:.0%} of the words are <unk>")
    if full:
        folder = cache_folder(data.cache_dir) / "checks" / f"{corpus.fingerprint}-{CHECK_FORMAT}"
        found.warnings += remembered(folder, lambda: read_texts(data))["warnings"]


def share_of(token: int, ids: np.ndarray, full: bool) -> float:
    """Share of a token among all ids, or among blocks spread over them."""
    starts = np.arange(0, len(ids), BLOCK)
    if not full and len(starts) > FAST_BLOCKS:
        starts = starts[:: len(starts) // FAST_BLOCKS]
    blocks = [ids[start : start + BLOCK] for start in starts]
    return sum(int((b == token).sum()) for b in blocks) / max(sum(map(len, blocks)), 1)


def read_texts(data: TextDataModule) -> dict[str, list[str]]:
    """Counts texts that were decoded wrongly."""
    rows = (row for source in data.find().values() for row in source.rows(data.columns))
    about = sum(map(len, data.corpus.splits.values()))  # without repeated ones
    texts = (text for text, *_ in shown(rows, about))
    counts = Counter(what for text in texts for what, s in TRACES.items() if s.search(text))
    return {
        "warnings": [f"{n} texts hold {what}: look at the encoding" for what, n in counts.items()]
    }
