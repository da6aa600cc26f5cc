"""Which folders are splits and which are classes, decided by the whole layout.

Splits are `root/train/<class>/…` with `val` and `test` beside `train` (or what else SPLIT_NAMES
calls them); without a train folder that has class folders, each `root/<class>/` is a class.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from datamodules.archives import past_single_folder
from datamodules.findings import Finding, warning
from datamodules.image_listing import Found, ImageListing, Survey, counted, join, refuse
from datamodules.splits import SPLIT_NAMES
from datamodules.wording import listing, quantity
from preprocessing.images import EXTENSIONS

AS_CLASSES = "--data.splits none takes every folder for a class"


def list_folder(root: Path, splits: str = "auto", is_unpacked: bool = False) -> ImageListing:
    """Lists a folder tree; classes come from the train folder and are matched by name.

    Args:
        root: The folder.
        splits: "auto" finds the splits, "none" takes every folder for a class.
        is_unpacked: An archive: one folder may hold all others.

    Raises:
        ValueError: No classes, empty classes, classes unknown to train, unreadable folders, splits
            that could be meant in two ways.
    """
    survey = Survey()
    findings: list[Finding] = []
    if is_unpacked and (top := past_single_folder(root)) != root:
        if beside := survey.entries(root).pictures:
            findings.append(classless(root, beside))
        root = top
    top_level = survey.entries(root)
    places = {} if splits == "none" else split_folders(root, top_level.folders, findings)
    if places and top_level.pictures:
        findings.append(classless(root, top_level.pictures))
    found: Found = {}
    for split, place in (places or {"train": root}).items():
        before = survey.others + survey.hidden
        inside = survey.entries(place) if places else top_level
        found[split] = {}
        for folder in inside.folders:
            found[split][folder.name] = pictures_of_class(folder, split, survey)
        if split != "train" and not any(found[split].values()):
            del found[split]
            rest = survey.others + survey.hidden - before
            findings.append(unusable(split, place, inside.pictures, rest))
        elif inside.pictures:
            findings.append(classless(place, inside.pictures))
        if split == "train" and not found[split]:
            what = f"{quantity(len(inside.pictures), 'picture')}"
            what += f", {counted(survey.others)}" if survey.others else ""
            survey.problems.append(
                f"{place} has no class folders; expected <class>/<picture>, found {what}"
            )
    if not places and len(top_level.folders) == 1:
        (only,) = top_level.folders
        if inner := Survey().entries(only).folders:
            survey.problems.append(
                f"its one folder {only.name} would be the only class; it holds the folders "
                f"{listing([folder.name for folder in inner], 3)}: perhaps --data.root {only}"
            )
    return join(found, survey.problems, [*findings, *survey.findings()], str(root))


def split_folders(root: Path, folders: Sequence[Path], findings: list[Finding]) -> dict[str, Path]:
    """The folder of each split; none where the folders are classes.

    Raises:
        ValueError: Two folders are the same split, or the splits have no train or no classes.
    """
    named: dict[str, list[Path]] = {}
    for folder in folders:
        if split := SPLIT_NAMES.get(folder.name.lower()):
            named.setdefault(split, []).append(folder)
    others = [folder for folder in folders if folder.name.lower() not in SPLIT_NAMES]
    if not named:
        return {}
    names = listing([folder.name for found in named.values() for folder in found])
    holders = {
        split for split, found in named.items() if any(Survey().entries(f).folders for f in found)
    }
    if "train" not in holders and not holders and len(named) == 1 and others:
        findings.append(
            warning(
                f"{names} is taken for a class, like {listing([f.name for f in others], 3)}: it "
                "has no class folders of its own, as a split would"
            )
        )
        return {}
    problems = [
        f"{listing([folder.name for folder in found])} could each be {split}: keep one, or "
        "rename the other"
        for split, found in named.items()
        if len(found) > 1
    ]
    if "train" not in named:
        problems.append(f"{root} has {names} but no train folder; {AS_CLASSES}")
    elif "train" not in holders:
        peek = Survey(problems)  # it may be that the folder cannot be read
        what = quantity(len(peek.entries(named["train"][0]).pictures), "picture")
        problems.append(
            f"{named['train'][0]} has no class folders: expected <class>/<picture>, found {what}; "
            f"a .csv with the columns path and label can name their classes, {AS_CLASSES}"
        )
    if problems:
        refuse(str(root), problems)
    if others:
        findings.append(unused(named["train"][0], others))
    return {split: found[0] for split, found in named.items()}


def pictures_of_class(folder: Path, split: str, survey: Survey) -> list[str]:
    """Its pictures; a class of train that has none is a problem."""
    before = survey.others + survey.hidden
    found = survey.pictures(folder)
    if split == "train" and not found:
        rest = survey.others + survey.hidden - before
        reason = f"no pictures, only {counted(rest)}" if rest else "empty"
        survey.problems.append(f"{folder}: {reason} (readable: {', '.join(EXTENSIONS)})")
    return found


def unused(train: Path, others: Sequence[Path]) -> Finding:
    """Says which folders beside the splits are left alone."""
    about = [f"{f.name} ({quantity(len(Survey().pictures(f)), 'picture')})" for f in others]
    return warning(
        f"not used, as no split is called so: {listing(about)}; should {train.name} be a class "
        f"like {others[0].name}: {AS_CLASSES}"
    )


def unusable(split: str, place: Path, pictures: Sequence[str], rest: Counter[str]) -> Finding:
    """Says why a folder is not the split that it is called."""
    fate = f"{split} is cut from train instead"
    if not pictures:
        what = f"no pictures, only {counted(rest)}" if rest else "no pictures"
        return warning(f"{place} holds {what}: {fate}")
    fate += "; predict.py can answer for them" if split == "test" else ""
    what = quantity(len(pictures), "picture")
    return warning(f"{place} holds {what} but no class folders, so no labels: {fate}")


def classless(place: Path, pictures: Sequence[str]) -> Finding:
    """Says that pictures lie beside the class folders."""
    what = quantity(len(pictures), "picture")
    return warning(f"not used: {what} directly in {place}, outside of any class folder")
