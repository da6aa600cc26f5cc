"""Which files under `--data.root` hold which split, and in which form.

Known layouts: one file; files or folders whose names say train, val or test (`train.csv`,
`TREC.test`, `imdb_train.parquet`, `train/<class>/*.txt`); `<class>/*.txt`, at any depth; one file a
class (`reviews.pos` and `reviews.neg`, or `pos.txt` and `neg.txt`). What lies there and is not
used is named: hidden files, other kinds of files, a val or test without labels.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from datamodules.splits import SPLIT_NAMES
from datamodules.text_columns import Columns, NoLabelColumn
from datamodules.text_decoding import COMPRESSIONS, base_suffix, open_bytes
from datamodules.text_leftovers import Leftovers, check_name
from datamodules.text_readers import TextSource
from datamodules.wording import listing

TABLE_FORMATS = {
    ".csv": "table",
    ".tsv": "table",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
NUM_SHOWN = 5


def find_sources(
    root: Path,
    chosen: Mapping[str, str | None],
    ignored_folders: Collection[str] = (),
    columns: Columns | None = None,
) -> dict[str, TextSource]:
    """The files of each split; at least "train", whose notes say what is not used.

    Args:
        root: A folder or one file.
        chosen: Paths of "train", "val" and "test" (relative to root) where the user names them.
        ignored_folders: Names of class folders that do not count.
        columns: Where tables hold text and label.

    Raises:
        FileNotFoundError: A path does not exist, or nothing usable lies there.
        ValueError: More than one file could be a split.
    """
    check_name(root)
    if not root.exists():
        raise FileNotFoundError(f"--data.root {root} does not exist")
    left = Leftovers(root)
    if any(chosen.values()):
        named = {split: root / path for split, path in chosen.items() if path}
        missing = [str(path) for path in named.values() if not path.exists()]
        if missing or "train" not in named:
            raise FileNotFoundError(
                f"no such file: {', '.join(missing)}" if missing else "--data.train_file is needed"
            )
        used = {place for path in named.values() for place in (path, *path.parents)}
        left.unused.update(set(left.visible(root)) - used if root.is_dir() else ())
        sources = {split: one_source(path, ignored_folders, left) for split, path in named.items()}
    elif root.is_file():
        sources = {"train": one_source(root, ignored_folders, left)}
    else:
        sources = split_sources(root, ignored_folders, columns or Columns(), left)
    return sources | {"train": replace(sources["train"], notes=left.notes())}


def split_sources(
    root: Path, ignored_folders: Collection[str], columns: Columns, left: Leftovers
) -> dict[str, TextSource]:
    """Sources by the split words in the names below root; all is train where there are none."""
    found: dict[str, list[Path]] = {}
    others = []
    for path in left.visible(root):
        words = re.split(r"[._\- ]", path.name.lower())
        splits = {SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES}
        if len(splits) == 1:
            found.setdefault(splits.pop(), []).append(path)
        else:
            others.append(path)
    listed = {split: ", ".join(path.name for path in paths) for split, paths in found.items()}
    if "train" not in found:
        if found and not others:
            raise ValueError(
                f"{root} has {', '.join(listed.values())}, but nothing that is called train; name "
                "it by --data.train_file"
            )
        whole = one_source(root, ignored_folders, left)
        if found and whole.labels:
            left.remarks.append(
                f"{', '.join(listed.values())} is taken for a class: nothing is called train"
            )
        return {"train": whole}
    for split, paths in found.items():
        if len(paths) > 1:
            raise ValueError(
                f"{root}: {listed[split]} could each be {split}; choose one by --data.{split}_file"
            )
    left.unused.update(others)
    sources = {"train": one_source(found.pop("train")[0], ignored_folders, left)}
    sources["train"].chosen(columns)
    for split, (path,) in found.items():
        source = None
        if not (problem := no_classes(path, sources["train"], left)):
            source = one_source(path, ignored_folders, left)
            problem = no_label_column(source, columns)
        if source and not problem:
            sources[split] = source
        else:
            left.remarks.append(
                f"{path.name} has no labels ({problem}): it is left for predict.py, and {split} is "
                "cut from train"
            )
    return sources


def no_classes(path: Path, train: TextSource, left: Leftovers) -> str | None:
    """What a folder holds in the place of class folders, where train has such."""
    if train.format != "class_folders" or not path.is_dir():
        return None
    inside = left.visible(path)
    if any(entry.is_dir() for entry in inside):
        return None
    kinds = Counter(base_suffix(entry) or entry.name for entry in inside)
    held = listing([f"{count:,} {kind}" for kind, count in kinds.items()], NUM_SHOWN)
    return f"no class folders, but {held or 'nothing'}"


def no_label_column(source: TextSource, columns: Columns) -> str | None:
    """Why a table has no labels."""
    try:
        source.chosen(columns)
    except NoLabelColumn as error:
        return str(error).removeprefix(f"{source.files[0]}: ").rpartition("; ")[0]
    return None


def one_source(
    path: Path, ignored_folders: Collection[str], left: Leftovers | None = None
) -> TextSource:
    """A file, a folder of class folders, or a folder with one file a class."""
    if path.is_file():
        return TextSource((path,), format_of(path))
    left = left or Leftovers(path)
    entries = left.visible(path)
    classes = [c for c in entries if c.is_dir() and c.name not in ignored_folders]
    if classes:
        left.unused.update(set(entries) - set(classes))
        return class_folders(path, classes, left)
    files = [file for file in entries if file.is_file()]
    if len(files) == 1:
        return TextSource((files[0],), format_of(files[0]))
    is_table = any(base_suffix(file) in TABLE_FORMATS for file in files)
    if len(files) < 2 or is_table or not (labels := class_labels(files)):
        raise FileNotFoundError(
            f"{path}: no layout that is known (files named train, val, test; <class>/*.txt; one "
            f"file a class) among {', '.join(file.name for file in files[:10]) or 'no files'}; "
            "name the files by --data.train_file, --data.val_file and --data.test_file"
        )
    return TextSource(tuple(files), "class_lines", tuple(labels))


def class_folders(root: Path, classes: list[Path], left: Leftovers) -> TextSource:
    """`<class>/*.txt`, at any depth.

    Raises:
        ValueError: Folders without text files.
    """
    files: list[Path] = []
    labels: list[str] = []
    empty = []
    for folder in classes:
        texts = texts_below(folder, left)
        files += texts
        labels += [folder.name] * len(texts)
        if not texts:
            others = sorted({f.suffix or f.name for f in left.visible(folder)})
            empty.append(f"{folder.name} ({', '.join(others[:5]) or 'empty'})")
    if empty:
        raise ValueError(f"{root}: class folders without .txt files: {', '.join(empty)}")
    return TextSource(tuple(files), "class_folders", tuple(labels))


def texts_below(folder: Path, left: Leftovers) -> list[Path]:
    """Text files at any depth; links to folders are not followed."""
    found, pending = [], [folder]
    while pending:
        for path in left.visible(pending.pop()):
            if base_suffix(path) == ".txt" and path.is_file():
                found.append(path)
            elif path.is_dir() and not path.is_symlink():
                pending.append(path)
            else:
                left.unused.add(path)
    return sorted(found)


def class_labels(files: list[Path]) -> list[str]:
    """What tells the files apart: the stem, or the suffix where all stems are equal; empty where
    they differ in both, as with a readme beside them."""
    inner = [f.with_suffix("") if f.suffix.lower() in COMPRESSIONS else f for f in files]
    if len({file.stem for file in inner}) == 1:
        return [file.suffix.lstrip(".") for file in inner]
    return [file.stem for file in inner] if len({file.suffix for file in inner}) == 1 else []


def format_of(path: Path) -> str:
    """Reader of a file, by its name or, for plain text, its first line.

    Raises:
        ValueError: The file is empty, or its form is not known.
    """
    suffix = base_suffix(path)
    if suffix in TABLE_FORMATS:
        return TABLE_FORMATS[suffix]
    with open_bytes(path) as stream:
        first = stream.readline(4096)
    if re.match(rb"\w+:\S+\s+\S", first):
        return "labelled_lines"
    if not first:
        raise ValueError(f"{path} is empty")
    raise ValueError(
        f"{path}: a file ending in {suffix or 'nothing'} is read as 'LABEL:fine text' lines, but "
        f"its first line is {first[:60]!r}; known endings: {', '.join(TABLE_FORMATS)}"
    )
