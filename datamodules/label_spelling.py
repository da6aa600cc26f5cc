"""Labels that are written differently and may mean the same.

What nobody can see is taken away from every label: invisible characters, blanks around it,
Unicode's different forms of one letter. What can be seen (case, the way a number is written) stays
a class of its own until somebody asks to join it.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction

from datamodules.wording import listing

INVISIBLE = dict.fromkeys(
    # soft hyphen, joiners, marks of direction, variation selectors, byte order mark
    [0xAD, 0x34F, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F),
     *range(0x2060, 0x2070), *range(0xFE00, 0xFE10), 0xFEFF]
)  # fmt: skip
NUMBER = re.compile(r"[+-]?(\d{1,99}\.?\d{0,99}|\.\d{1,99})(e[+-]?\d{1,3})?", re.IGNORECASE)
JOINERS = "|;,"  # of several labels in one; a comma only where its parts are labels, too
KINDS = {str: "texts", int: "numbers", float: "numbers", bool: "true or false"}  # in JSON
NUM_SHOWN = 5


def visible(label: str) -> str:
    """The label without what cannot be seen."""
    return " ".join(unicodedata.normalize("NFC", label.translate(INVISIBLE)).split())


def number(label: str) -> str:
    """The same text for 1, 1.0 and 01; not for 1/2 and 0.5."""
    return f"= {Fraction(label)}" if NUMBER.fullmatch(label) else label


FOLDS: dict[str, Callable[[str], str]] = {"case": str.casefold, "number": number}
DIFFERENCES = {"case": "only in case", "number": "only in how a number is written"}


def joined(counts: Mapping[str, int], kinds: Collection[str]) -> dict[str, str]:
    """The label that stands for each: of those that are joined, the one that comes most often."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for label in counts:
        folded = label
        for kind in kinds:
            folded = FOLDS[kind](folded)
        groups[folded].append(label)
    chosen = [min(group, key=lambda one: (-counts[one], one)) for group in groups.values()]
    pairs = zip(groups.values(), chosen, strict=True)
    return {label: best for group, best in pairs for label in group}


def visible_classes(
    found: Mapping[str, Mapping[str, list[str]]],
) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """Paths by split and class, under the classes' visible names, and what was odd about them."""
    cleaned: dict[str, dict[str, list[str]]] = {}
    notes = []
    for split, classes in found.items():
        cleaned[split] = {}
        for name, paths in classes.items():
            cleaned[split].setdefault(visible(name), []).extend(paths)
        notes += label_notes(split, [(name, len(paths)) for name, paths in classes.items()])
    return cleaned, notes


def near(label: str, labels: Sequence[str], has_flag: bool = True) -> str:
    """Says which of the labels a missing one may be: `; it differs from 'a' only in case: …`."""
    for kind, fold in FOLDS.items():
        for other in labels:
            if fold(other) == fold(label):
                remedy = f"--data.join_labels {kind}" if has_flag else "give them one name"
                return f"; it differs from {other!r} {DIFFERENCES[kind]}: {remedy}"
    return ""


def spelling_findings(counts: Mapping[str, int], has_flag: bool) -> list[str]:
    """Classes that may be one, and classes that may be several.

    Args:
        counts: Training samples by class name.
        has_flag: Whether --data.join_labels can join them; else their names must be made one.
    """
    found = []
    folds = {"": visible, **FOLDS}
    for kind, fold in folds.items():
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for name in counts:
            groups[fold(name)].append(name)
        alike = [counted(group, counts) for group in groups.values() if len(group) > 1]
        if alike:
            difference = DIFFERENCES.get(kind, "only in what cannot be seen")
            flag = f"--data.join_labels {kind} joins them"
            remedy = flag if kind and has_flag else "if they are one, give them one name"
            found.append(f"classes differ {difference}: {listing(alike, NUM_SHOWN)}; {remedy}")
    joint = joint_names(list(counts))
    if joint:
        found.append(
            f"{len(joint)} class names look like several labels in one, and are classes of their "
            f"own: {listing([f'{name!r} ({counts[name]:,})' for name in joint], NUM_SHOWN)}; each "
            "sample has one label here"
        )
    return found


def counted(names: Sequence[str], counts: Mapping[str, int]) -> str:
    """`'Pos' (3) and 'pos' (40)`; invisible characters as escapes."""
    shown = [ascii(n) if visible(n) != n else repr(n) for n in names]
    return " and ".join(f"{one} ({counts[name]:,})" for one, name in zip(shown, names, strict=True))


def joint_names(names: Sequence[str]) -> list[str]:
    """Names that are others put together: `a|b`, `a; b`, a list as `["a", "b"]`, and `a, b` where a
    and b are classes."""
    parts = {
        (name, sign): [part.strip() for part in name.split(sign)]
        for name in names
        for sign in JOINERS
        if sign in name.strip(sign)
    }
    known = Counter(part for some in parts.values() for part in {*some}) + Counter(names)
    joint = {
        name
        for (name, sign), some in parts.items()
        if sign != "," or all(known[part] > 1 for part in some)
    }
    return [name for name in names if name in joint or name[:1] + name[-1:] in ("[]", "{}")]


def label_notes(split: str, written: Sequence[tuple[object, int]]) -> list[str]:
    """What was odd about the labels of a split.

    Args:
        split: For the messages.
        written: Labels as they stand in the files, each with its rows.
    """
    notes = []
    changed = [(str(one), n) for one, n in written if visible(str(one)) != str(one)]
    if changed:
        shown = [f"{ascii(label)} ({count:,})" for label, count in changed]
        total = sum(count for _, count in changed)
        notes.append(
            f"{total:,} labels of {split} lost blanks or characters that cannot be seen: "
            + listing(shown, NUM_SHOWN)
        )
    kinds: Counter[str] = Counter()
    for label, count in written:
        kinds[KINDS[type(label)]] += count
    if len(kinds) > 1:
        shown = [f"{count:,} {kind}" for kind, count in sorted(kinds.items())]
        notes.append(f"labels of {split} are {' and '.join(shown)}: the same if written alike")
    return notes
