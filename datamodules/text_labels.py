"""From the labels in the files to classes: cleaned, joined where that is asked for, in order."""

import re
from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

from datamodules.label_spelling import joined, label_notes, near
from datamodules.text_raw import RawTexts
from datamodules.wording import listing

NUM_SHOWN = 5


def make_classes(
    raw: Mapping[str, RawTexts], join: Collection[str]
) -> tuple[list[str], dict[str, np.ndarray], list[str]]:
    """The classes in order, each split's targets (int64 [M]), and what was odd about the labels.

    Args:
        raw: The splits as they were read.
        join: Which differences in writing do not count, of `label_spelling.FOLDS`.

    Raises:
        ValueError: Labels that cannot be classes, or that train does not have.
    """
    train = raw["train"]
    notes = [note for split, part in raw.items() for note in label_notes(split, part.written)]
    counts = Counter(train.label_counts)
    for part in raw.values():  # those that train lacks count nothing, but can be joined
        counts.update(dict.fromkeys(part.label_names, 0))
    stands_for = joined(counts, join)
    labels = natural_order(sorted({stands_for[label] for label in train.label_names}))
    check_classes(train, labels)
    others = [f"{one!r} → {label!r}" for one, label in stands_for.items() if one != label]
    if others:
        notes.append(f"labels are joined: {listing(others, NUM_SHOWN)}")
    return labels, {s: to_targets(part, labels, stands_for) for s, part in raw.items()}, notes


def natural_order(names: list[str]) -> list[str]:
    """Numbers by value, everything else by text."""
    if all(re.fullmatch(r"-?\d+", name) for name in names):
        return sorted(names, key=int)
    return sorted(names)


def check_classes(train: RawTexts, labels: list[str]) -> None:
    """Refuses labels that cannot be classes."""
    if "" in labels:
        row = int(np.flatnonzero(train.labels == train.label_names.index(""))[0])
        raise ValueError(f"{train.location(row)}: the label is empty")
    if len(labels) < 2:
        raise ValueError(f"train has one class only: {labels[0]!r}; two are needed")
    if len(labels) > max(20, len(train) // 2):
        raise ValueError(
            f"train has {len(labels)} different labels in {len(train)} rows, among them "
            f"{', '.join(map(repr, labels[:3]))}: is this the label column?"
        )


def to_targets(part: RawTexts, labels: list[str], stands_for: Mapping[str, str]) -> np.ndarray:
    """Places of the rows' labels in the list of classes; int64 [M].

    Raises:
        ValueError: A label that train does not have; file, line and value are named.
    """
    place = {label: i for i, label in enumerate(labels)}
    codes = np.array([place.get(stands_for[label], -1) for label in part.label_names])
    targets = codes[part.labels]
    unknown = np.flatnonzero(targets < 0)
    if len(unknown):
        row = int(unknown[0])
        label = part.label_names[part.labels[row]]
        advice = near(label, labels)
        if len(unknown) == len(part) and not advice:
            advice = "; no row has a label of train: what is not labelled is for predict.py"
        raise ValueError(
            f"{part.location(row)}: label {label!r} does not occur in train ({len(unknown)} such "
            f"rows){advice}; train has {', '.join(map(repr, labels[:20]))}"
        )
    return targets
