"""Which files become which split."""

import os
from pathlib import Path

import pytest

from datamodules.text_layout import find_sources

NOTHING: dict[str, str | None] = {"train": None, "val": None, "test": None}


def make(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("LABEL:fine text\n" if path.suffix != ".csv" else "text,label\nx,y\n")
    return root


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train.csv", "dev.csv", "test.csv"], {"train": "table", "val": "table", "test": "table"}),
        (["TREC.train", "TREC.test"], {"train": "labelled_lines", "test": "labelled_lines"}),
        (["imdb_train.csv", "readme.md"], {"train": "table"}),
        (["train/pos/1.txt", "train/neg/2.txt", "test/pos/3.txt", "test/neg/4.txt"],
         {"train": "class_folders", "test": "class_folders"}),
        (["pos/1.txt", "neg/2.txt"], {"train": "class_folders"}),
        (["mr.pos", "mr.neg"], {"train": "class_lines"}),
        (["only.csv"], {"train": "table"}),
    ],
)  # fmt: skip
def test_layouts(tmp_path: Path, names: list[str], expected: dict[str, str]) -> None:
    sources = find_sources(make(tmp_path, *names), NOTHING)
    assert {split: source.format for split, source in sources.items()} == expected


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["mr.pos", "mr.neg"], ("neg", "pos")),
        (["pos.txt", "neg.txt"], ("neg", "pos")),
        (["b/1.txt", "b/2.txt", "a/1.txt", "unsup/1.txt"], ("a", "b", "b")),
    ],
)
def test_labels_come_from_names(tmp_path: Path, names: list[str], labels: tuple[str]) -> None:
    sources = find_sources(make(tmp_path, *names), NOTHING, ignored_folders=("unsup",))
    assert sources["train"].labels == labels


def test_files_can_be_named(tmp_path: Path) -> None:
    make(tmp_path, "x.csv", "y.csv")
    sources = find_sources(tmp_path, {"train": "x.csv", "val": None, "test": "y.csv"})
    assert {s: p.files[0].name for s, p in sources.items()} == {"train": "x.csv", "test": "y.csv"}
    with pytest.raises(FileNotFoundError, match="no such file: .*z.csv"):
        find_sources(tmp_path, {"train": "x.csv", "val": "z.csv"})
    with pytest.raises(FileNotFoundError, match="--data.train_file is needed"):
        find_sources(tmp_path, {"train": None, "val": "y.csv"})


def test_two_candidates_for_a_split_are_an_error(tmp_path: Path) -> None:
    make(tmp_path, "train.csv", "train_old.csv")
    with pytest.raises(ValueError, match="train.csv, train_old.csv could each be train; choose"):
        find_sources(tmp_path, NOTHING)


def test_all_empty_class_folders_are_listed(tmp_path: Path) -> None:
    make(tmp_path, "a/1.txt", "b/1.pdf", "c/.hidden")
    with pytest.raises(ValueError, match=r"without .txt files: b \(.pdf\), c \(empty\)"):
        find_sources(tmp_path, NOTHING)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    strange = os.fsdecode(b"caf\xe9")
    make(tmp_path, "a/1.txt", f"{strange}/1.txt")
    with pytest.raises(ValueError, match=r"caf\\udce9': its name is not UTF-8"):
        find_sources(tmp_path, NOTHING)
    with pytest.raises(ValueError, match="its name is not UTF-8"):
        find_sources(tmp_path / strange, NOTHING)


@pytest.mark.parametrize("names", [[], ["a.csv", "b.csv"]])
def test_an_unknown_layout_is_an_error(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(FileNotFoundError, match="no layout that is known"):
        find_sources(make(tmp_path, *names), NOTHING)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_sources(tmp_path / "nowhere", NOTHING)
