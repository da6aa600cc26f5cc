"""Finds pictures and their classes, in a folder tree or a table, and reports every fault at once.

A tree is `root/train/<class>/…` with `val` and `test` beside `train`, or `root/<class>/…`. A table
is a CSV file with the columns path, label and, where it wants to fix the splits, split.
"""

import csv
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datamodules.image_splits import Finding, listing
from datamodules.splits import SPLIT_NAMES
from preprocessing.images import EXTENSIONS

NOT_CLASSES = ("__MACOSX",)  # left behind by macOS in archives


class ListedImages(NamedTuple):
    """M paths, bytes [M], and their labels, int64 [M]."""

    paths: np.ndarray
    targets: np.ndarray


class ImageListing(NamedTuple):
    """Class names in label order and the splits that the source has, at least train."""

    class_names: list[str]
    splits: dict[str, ListedImages]
    notes: list[str]


Found = dict[str, dict[str, list[str]]]  # paths by split and class


def list_folder(root: Path) -> ImageListing:
    """Lists a folder tree; classes come from the train folder and are matched by name.

    Raises:
        ValueError: No classes, empty classes, classes unknown to train, unreadable folders.
    """
    problems: list[str] = []
    ignored: Counter[str] = Counter()
    places = {
        SPLIT_NAMES[folder.name.lower()]: folder
        for folder in subfolders(root, problems)
        if folder.name.lower() in SPLIT_NAMES
    }
    if places and "train" not in places:
        problems.append(f"{root} has {listing([*places])} but no train folder")
    places = places if "train" in places else {"train": root}
    found: Found = {}
    for split, place in places.items():
        found[split] = {}
        for folder in subfolders(place, problems):
            others: Counter[str] = Counter()
            found[split][folder.name] = pictures(folder, others, problems)
            ignored += others
            if split == "train" and not found[split][folder.name]:
                reason = f"no pictures, only {counted(others)}" if others else "empty"
                problems.append(f"{folder}: {reason} (readable: {', '.join(EXTENSIONS)})")
    if not found["train"]:
        problems.append(f"{places['train']} has no class folders; expected <class>/<picture>")
    notes = [Finding(f"files that are no pictures were ignored: {counted(ignored)}")]
    return join(found, problems, notes if ignored else [], str(root))


def list_table(path: Path) -> ImageListing:
    """Lists a CSV file; relative paths start at its folder.

    Raises:
        ValueError: Missing columns, empty fields, unknown splits, labels unknown to train.
    """
    problems: list[str] = []
    found: Found = {"train": {}}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if missing := {"path", "label"} - set(rows.fieldnames or ()):
                raise ValueError(
                    f"{path}: no column {' and '.join(sorted(missing))}; the first line must name "
                    f"path and label, got {listing(list(rows.fieldnames or ['nothing']))}"
                )
            for row in rows:
                name, label = (row["path"] or "").strip(), (row["label"] or "").strip()
                split = (row.get("split") or "train").strip().lower()
                if name and label and split in SPLIT_NAMES:
                    classes = found.setdefault(SPLIT_NAMES[split], {})
                    classes.setdefault(label, []).append(str(path.parent / name))
                else:
                    problems.append(
                        f"{path}, line {rows.line_num}: path {name[:99]!r}, label {label[:99]!r}, "
                        f"split {split[:99]!r}; expected all given, the split of "
                        f"{', '.join(SPLIT_NAMES)}"
                    )
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.line_num + 1}: {error}") from error
    if not found["train"]:
        problems.append(f"{path}: no rows of train")
    return join(found, problems, [], str(path))


def join(found: Found, problems: list[str], notes: Sequence[str], source: str) -> ImageListing:
    """Puts labels on the paths, or raises all problems as one error."""
    class_names = natural_order(found["train"])
    problems += [f"the class name {n!r} is not UTF-8" for n in class_names if not encodable(n)]
    problems += [
        f"{split}: class {name!r} is not in train, which has {listing(class_names)}"
        for split, classes in found.items()
        for name, paths in classes.items()
        if paths and name not in class_names
    ]
    if problems:
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise ValueError(f"{source} cannot be used:\n  " + "\n  ".join(problems[:20]) + more)
    splits = {}
    for split, classes in found.items():
        by_label = [classes.get(name, []) for name in class_names]
        targets = np.repeat(np.arange(len(class_names)), [len(paths) for paths in by_label])
        names = np.array([os.fsencode(path) for paths in by_label for path in paths])
        splits[split] = ListedImages(names, targets)
    shown = listing([f"{label} {name}" for label, name in enumerate(class_names)], 20)
    return ImageListing(class_names, splits, [f"{len(class_names)} classes: {shown}", *notes])


def natural_order(names: Iterable[str]) -> list[str]:
    """Sorted; by value where all names are whole numbers."""
    numeric = all(name.isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name) if numeric else 0, name))


def encodable(name: str) -> bool:
    """Whether a file of ours could hold the name."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def subfolders(folder: Path, problems: list[str]) -> list[Path]:
    """Folders in a folder by name, without hidden ones."""
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        problems.append(f"{folder}: cannot be read ({error.strerror})")
        return []
    return [
        child
        for child in children
        if not child.name.startswith(".") and child.name not in NOT_CLASSES and child.is_dir()
    ]


def pictures(folder: Path, others: Counter[str], problems: list[str]) -> list[str]:
    """Paths of all pictures at any depth below a folder; other files are counted by extension.

    Links are followed, but never back into a folder that was seen or that holds this one.
    """
    seen = {identity(parent) for parent in folder.resolve().parents}
    found = []

    def report(error: OSError) -> None:
        problems.append(f"{error.filename}: cannot be read ({error.strerror})")

    for current, folders, files in os.walk(folder, followlinks=True, onerror=report):
        if identity(Path(current)) in seen:
            folders.clear()
            continue
        seen.add(identity(Path(current)))
        folders.sort()
        for name in sorted(name for name in files if not name.startswith(".")):
            extension = os.path.splitext(name)[1].lower()
            if extension in EXTENSIONS:
                found.append(os.path.join(current, name))
            else:
                others[extension or name] += 1
    return found


def identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def counted(kinds: Counter[str]) -> str:
    return listing([f"{count} {kind}" for kind, count in kinds.items()])
