"""What an image source delivers, and the checks of it before training.

What would make a run worthless is raised here, before anything else is looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from datamodules.findings import Finding, texts, warning
from datamodules.packed_images import ImageSet
from datamodules.splits import SPLITS, conflicting_pairs, stratified_split
from datamodules.wording import listing, quantity
from tasks.base import Task
from tasks.single_label import SingleLabel


@dataclass(frozen=True)
class ImageSplits:
    """Class names in label order, the splits, and what the user should know about them."""

    class_names: list[str]
    train: ImageSet
    val: ImageSet
    test: ImageSet
    findings: list[Finding] = field(default_factory=list)

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


def check_labels(splits: ImageSplits, found: Sequence[Finding] = ()) -> list[Finding]:
    """Checks that labels index the class names and that every class can be learned.

    Args:
        splits: The images.
        found: What is known of them, which may be why a split has none.

    Returns:
        Warnings of classes that val or test does not hold.

    Raises:
        ValueError: A label outside 0..K-1, with split, row and range; a class without training
            images; no validation or test images.
    """
    num_classes = len(splits.class_names)
    problems: list[str] = []
    missing_classes: list[Finding] = []
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
            missing_classes.append(warning(f"{name} has no images of {names}"))
    if problems:
        causes = warning_lines(found) if is_short else ""
        raise ValueError("the images cannot be used:\n  " + "\n  ".join(problems) + causes)
    return missing_classes


def warning_lines(findings: Sequence[Finding]) -> str:
    """The warnings, as further lines of a message."""
    return "".join(f"\n  found: {text}" for text in texts(findings, "warning"))


def drop_duplicates(splits: ImageSplits, keep: bool) -> tuple[ImageSplits, list[Finding]]:
    """Counts images with equal pixels across splits; takes them out of train unless `keep`."""
    findings = conflicts(splits)
    shared = np.isin(splits.val.hashes, splits.test.hashes)
    if shared.any():
        both = quantity(shared.sum(), "image of val")
        findings.append(warning(f"{both} that test holds as well"))
    evaluated = np.concatenate([splits.val.hashes, splits.test.hashes])
    leaked = np.isin(splits.train.hashes, evaluated)
    if leaked.any():
        leaks = quantity(leaked.sum(), "image of train")
        fate = "kept" if keep else "dropped from train"
        findings.append(warning(f"{leaks} that val or test holds as well: {fate}"))
    if leaked.any() and not keep:
        splits = replace(splits, train=splits.train.subset(np.flatnonzero(~leaked)))
    return splits, findings


def conflicts(splits: ImageSplits) -> list[Finding]:
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
    return [warning(f"{differ} with different labels: {listing(named, 5)}")]


def mixed(split: ImageSet) -> ImageSet:
    """The same samples in a random, but always the same order."""
    return split.subset(np.random.default_rng(0).permutation(len(split)))
