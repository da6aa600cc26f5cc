"""Which files under `--data.root` hold which split, and in which form.

Known layouts: one file; files or folders whose names say train, val or test (`train.csv`,
`TREC.test`, `imdb_train.parquet`, `train/<class>/*.txt`); `<class>/*.txt`; one file a class
(`reviews.pos` and `reviews.neg`, or `pos.txt` and `neg.txt`).
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from datamodules.text_readers import COMPRESSIONS, TextSource, base_suffix, open_bytes

SPLIT_WORDS = {"train": "train", "training": "train", "test": "test"} | dict.fromkeys(
    ("val", "valid", "validation", "dev"), "val"
)
TABLE_FORMATS = {
    ".csv": "table",
    ".tsv": "table",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


def find_sources(
    root: Path, chosen: Mapping[str, str | None], ignored_folders: Collection[str] = ()
) -> dict[str, TextSource]:
    """The files of each split; at least "train".

    Args:
        root: A folder or one file.
        chosen: Paths of "train", "val" and "test" (relative to root) where the user names them.
        ignored_folders: Names of class folders that do not count.

    Raises:
        FileNotFoundError: A path does not exist, or nothing usable lies there.
        ValueError: More than one file could be a split.
    """
    check_name(root)
    if not root.exists():
        raise FileNotFoundError(f"--data.root {root} does not exist")
    if any(chosen.values()):
        named = {split: root / path for split, path in chosen.items() if path}
        missing = [str(path) for path in named.values() if not path.exists()]
        if missing or "train" not in named:
            raise FileNotFoundError(
                f"no such file: {', '.join(missing)}" if missing else "--data.train_file is needed"
            )
        return {split: one_source(path, ignored_folders) for split, path in named.items()}
    if root.is_file():
        return {"train": one_source(root, ignored_folders)}
    return split_sources(root, ignored_folders) or {"train": one_source(root, ignored_folders)}


def split_sources(root: Path, ignored_folders: Collection[str]) -> dict[str, TextSource]:
    """Sources by the split words in the names below root; empty where no name says train."""
    found: dict[str, list[Path]] = {}
    for path in visible(root):
        words = re.split(r"[._\- ]", path.name.lower())
        splits = {SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS}
        if len(splits) == 1:
            found.setdefault(splits.pop(), []).append(path)
    if "train" not in found:
        return {}
    for split, paths in found.items():
        if len(paths) > 1:
            listed = ", ".join(path.name for path in paths)
            raise ValueError(
                f"{root}: {listed} could each be {split}; choose one by --data.{split}_file"
            )
    return {split: one_source(paths[0], ignored_folders) for split, paths in found.items()}


def one_source(path: Path, ignored_folders: Collection[str]) -> TextSource:
    """A file, a folder of class folders, or a folder with one file a class."""
    if path.is_file():
        return TextSource((path,), format_of(path))
    classes = [c for c in visible(path) if c.is_dir() and c.name not in ignored_folders]
    if classes:
        return class_folders(path, classes)
    files = [file for file in visible(path) if file.is_file()]
    if len(files) == 1:
        return TextSource((files[0],), format_of(files[0]))
    if len(files) < 2 or any(base_suffix(file) in TABLE_FORMATS for file in files):
        raise FileNotFoundError(
            f"{path}: no layout that is known (files named train, val, test; <class>/*.txt; one "
            f"file a class) among {', '.join(file.name for file in files[:10]) or 'no files'}; "
            "name the files by --data.train_file, --data.val_file and --data.test_file"
        )
    return TextSource(tuple(files), "class_lines", tuple(class_labels(files)))


def class_folders(root: Path, classes: list[Path]) -> TextSource:
    """`<class>/*.txt`.

    Raises:
        ValueError: Folders without text files.
    """
    files: list[Path] = []
    labels: list[str] = []
    empty = []
    for folder in classes:
        texts = [f for f in visible(folder) if base_suffix(f) == ".txt" and f.is_file()]
        files += texts
        labels += [folder.name] * len(texts)
        if not texts:
            others = sorted({f.suffix or f.name for f in visible(folder)})
            empty.append(f"{folder.name} ({', '.join(others[:5]) or 'empty'})")
    if empty:
        raise ValueError(f"{root}: class folders without .txt files: {', '.join(empty)}")
    return TextSource(tuple(files), "class_folders", tuple(labels))


def class_labels(files: list[Path]) -> list[str]:
    """What tells the files apart: the stem, or the suffix where all stems are equal."""
    inner = [f.with_suffix("") if f.suffix.lower() in COMPRESSIONS else f for f in files]
    if len({file.stem for file in inner}) == 1:
        return [file.suffix.lstrip(".") for file in inner]
    return [file.stem for file in inner]


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


def visible(folder: Path) -> list[Path]:
    """Entries in order of their names, hidden ones left out."""
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in found:
        check_name(path)
    return found


def check_name(path: Path) -> None:
    """Refuses a name that no file of ours and no library could hold."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{str(path)!r}: its name is not UTF-8; give it another") from error
