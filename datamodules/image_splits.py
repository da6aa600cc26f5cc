"""What an image source delivers, and the checks of it before training.

Findings are sentences for the user; what would make a run worthless is an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from datamodules.packed_images import ImageSet
from datamodules.splits import SPLITS, conflicting_pairs, stratified_split
from datamodules.wording import quantity
from tasks.base import Task
from tasks.single_label import SingleLabel


class Finding(str):
    """A note that asks for a look: the data check takes it into its table."""


@dataclass(frozen=True)
class ImageSplits:
    """Class names in label order, the splits, and what the user should know about them."""

    class_names: list[str]
    train: ImageSet
    val: ImageSet
    test: ImageSet
    notes: list[str] = field(default_factory=list)

    @property
    def task(self) -> Task:
        return SingleLabel(self.class_names)

    def __getitem__(self, split: str) -> ImageSet:
        return {"train": self.train, "val": self.val, "test": self.test}[split]


def checked_fraction(split: str, asked: float | None, default: float) -> float:
    """The share of train that becomes another split."""
    if asked is not None and not 0 < asked < 1:
        raise ValueError(f"--data.{split}_fraction must lie between 0 and 1, got {asked}")
    return default if asked is None else asked


def cut_off(whole: ImageSet, fraction: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """Takes a stratified share of the samples away; returns (rest, share)."""
    share, rest = stratified_split(whole.targets, (fraction, 1 - fraction), seed)
    return whole.subset(rest), whole.subset(share)


def check_labels(splits: ImageSplits, found: Sequence[str] = ()) -> list[str]:
    """Checks that labels index the class names and that every class can be learned.

    Args:
        splits: The images.
        found: What is known of them, which may be why a split has none.

    Returns:
        Notes on classes that val or test does not hold.

    Raises:
        ValueError: A label outside 0..K-1, with split, row and range; a class without training
            images; no validation or test images.
    """
    num_classes = len(splits.class_names)
    problems: list[str] = []
    notes: list[str] = []
    is_short = False
    if num_classes < 2:
        problems.append(f"a classifier needs at least two classes, found {splits.class_names}")
    for name in SPLITS:
        targets = splits[name].targets
        if bad := splits.task.bad_target(targets):
            problems.append(f"{name}: {bad}")
            continue
        missing = np.flatnonzero(np.bincount(targets, minlength=num_classes) == 0)
        names = listing([splits.class_names[label] for label in missing])
        if not len(targets) and name != "train":
            problems.append(f"{name}: no images; add some, or raise --data.{name}_fraction")
            is_short = True
        elif len(missing) and name == "train":
            problems.append(f"train: no images of {names}")
            is_short = True
        elif len(missing) and len(targets):
            notes.append(Finding(f"{name} has no images of {names}"))
    if problems:
        causes = found_lines(found) if is_short else ""
        raise ValueError("the images cannot be used:\n  " + "\n  ".join(problems) + causes)
    return notes


def found_lines(notes: Sequence[str]) -> str:
    """The findings among the notes, as further lines of a message."""
    return "".join(f"\n  found: {note}" for note in notes if isinstance(note, Finding))


def drop_duplicates(splits: ImageSplits, keep: bool) -> tuple[ImageSplits, list[str]]:
    """Counts images with equal pixels across splits; takes them out of train unless `keep`."""
    notes = conflict_notes(splits)
    shared = np.isin(splits.val.hashes, splits.test.hashes)
    if shared.any():
        both = quantity(shared.sum(), "image of val")
        notes.append(Finding(f"{both} that test holds as well"))
    evaluated = np.concatenate([splits.val.hashes, splits.test.hashes])
    leaked = np.isin(splits.train.hashes, evaluated)
    if leaked.any():
        leaks = quantity(leaked.sum(), "image of train")
        fate = "kept" if keep else "dropped from train"
        notes.append(Finding(f"{leaks} that val or test holds as well: {fate}"))
    if leaked.any() and not keep:
        splits = replace(splits, train=splits.train.subset(np.flatnonzero(~leaked)))
    return splits, notes


def conflict_notes(splits: ImageSplits) -> list[str]:
    """Counts equal images of different classes, within and across splits."""
    hashes = np.concatenate([splits[name].hashes for name in SPLITS])
    targets = np.concatenate([splits[name].targets for name in SPLITS])
    pairs = conflicting_pairs(hashes, targets)
    if not len(pairs):
        return []
    split = np.repeat(SPLITS, [len(splits[name]) for name in SPLITS])
    known = dict(enumerate(splits.class_names))  # labels are checked later
    named = [" / ".join(f"{split[i]} {known.get(targets[i])}" for i in pair) for pair in pairs[:50]]
    differ = quantity(len(pairs), "pair of equal images")
    return [Finding(f"{differ} with different labels: {listing(named, 5)}")]


def mixed(split: ImageSet) -> ImageSet:
    """The same samples in a random, but always the same order."""
    return split.subset(np.random.default_rng(0).permutation(len(split)))


def listing(names: Sequence[str], limit: int = 10) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
