"""Pictures by class and split, and every fault of a source in one error.

Who lists them, image_layout (folders) or image_table (a .csv), knows where they stand; here they
get their labels.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from datamodules.findings import Finding, note, warning
from datamodules.label_spelling import near, visible_classes
from datamodules.wording import listing
from preprocessing.images import EXTENSIONS
from preprocessing.sources import identity, is_hidden

SHOWN_PROBLEMS = 20
UNLABELLED = "; if these have no labels, keep them elsewhere: predict.py takes any folder"


class ListedImages(NamedTuple):
    """M paths, bytes [M], and their labels, int64 [M]."""

    paths: np.ndarray
    targets: np.ndarray


class ImageListing(NamedTuple):
    """Class names in label order and the splits that the source has, at least train."""

    class_names: list[str]
    splits: dict[str, ListedImages]
    findings: list[Finding]


Found = dict[str, dict[str, list[str]]]  # paths by split and class


class Entries(NamedTuple):
    """What lies directly in a folder and is no hidden thing."""

    folders: list[Path]
    pictures: list[str]


@dataclass
class Survey:
    """What was come across beside the pictures."""

    problems: list[str] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)  # files of other kinds, by extension
    hidden: Counter[str] = field(default_factory=Counter)  # files and folders, by name

    def entries(self, folder: Path) -> Entries:
        """Folders and pictures directly in a folder, by name."""
        try:
            children = sorted(folder.iterdir())
        except OSError as error:
            self.problems.append(f"{folder}: cannot be read ({error.strerror})")
            return Entries([], [])
        seen = self.visible(child.name for child in children)
        folders = [folder / name for name in seen if (folder / name).is_dir()]
        names = {child.name for child in folders}
        return Entries(folders, self.pictures_of(folder, [n for n in seen if n not in names]))

    def pictures(self, folder: Path) -> list[str]:
        """Paths of all pictures at any depth below a folder.

        Links are followed, but never back into a folder that was seen or that holds this one.
        """
        seen = {identity(parent) for parent in folder.resolve().parents}
        found = []

        def report(error: OSError) -> None:
            self.problems.append(f"{error.filename}: cannot be read ({error.strerror})")

        for current, folders, files in os.walk(folder, followlinks=True, onerror=report):
            if identity(current) in seen:
                folders.clear()
                continue
            seen.add(identity(current))
            folders[:] = self.visible(sorted(folders))
            found += self.pictures_of(Path(current), self.visible(sorted(files)))
        return found

    def visible(self, names: Iterable[str]) -> list[str]:
        """The names without hidden ones, which are counted."""
        listed = list(names)
        # those of macOS have a name each: ._1.jpg lies beside 1.jpg
        self.hidden.update("._*" if n.startswith("._") else n for n in listed if is_hidden(n))
        return [name for name in listed if not is_hidden(name)]

    def pictures_of(self, folder: Path, names: Iterable[str]) -> list[str]:
        """Paths of the pictures among the files of a folder; the others are counted."""
        found = []
        for name in names:
            extension = os.path.splitext(name)[1].lower()
            if extension in EXTENSIONS:
                found.append(os.path.join(folder, name))
            else:
                self.others[extension or name] += 1
        return found

    def findings(self) -> list[Finding]:
        """What was left out."""
        return [
            warning(f"{what}: {sum(kinds.values()):,} ({counted(kinds)})")
            for what, kinds in (
                ("files that are no pictures and were ignored", self.others),
                ("hidden files and folders that were ignored", self.hidden),
            )
            if kinds
        ]


def join(
    found: Found, problems: list[str], findings: Sequence[Finding], source: str
) -> ImageListing:
    """Puts labels on the paths, or raises all problems as one error."""
    found, odd = visible_classes(found)
    class_names = natural_order(found["train"])
    problems = [
        *problems,
        *(f"the class name {n!r} is not UTF-8" for n in class_names if not encodable(n)),
        *(
            f"{split}: class {name!r} is not in train, which has {listing(class_names)}"
            + (
                near(name, class_names, has_flag=False)
                or (UNLABELLED if classes.keys().isdisjoint(class_names) else "")
            )
            for split, classes in found.items()
            for name, paths in classes.items()
            if paths and name not in class_names
        ),
    ]
    if problems:
        refuse(source, problems)
    splits = {}
    for split, classes in found.items():
        by_label = [classes.get(name, []) for name in class_names]
        targets = np.repeat(np.arange(len(class_names)), [len(paths) for paths in by_label])
        names = np.array([os.fsencode(path) for paths in by_label for path in paths])
        splits[split] = ListedImages(names, targets)
    shown = listing([f"{label} {name}" for label, name in enumerate(class_names)], 20)
    summary = note(f"{len(class_names)} classes: {shown}")
    return ImageListing(class_names, splits, [summary, *findings, *map(warning, odd)])


def refuse(source: str, problems: Sequence[str]) -> NoReturn:
    """Raises the problems of a source as one error."""
    left = len(problems) - SHOWN_PROBLEMS
    lines = [*problems[:SHOWN_PROBLEMS], *([f"and {left} more"] if left > 0 else [])]
    raise ValueError(f"{source} cannot be used:\n  " + "\n  ".join(lines))


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


def counted(kinds: Counter[str]) -> str:
    return listing([f"{count} {kind}" for kind, count in kinds.most_common()])
