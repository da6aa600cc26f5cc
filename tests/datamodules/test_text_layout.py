"""Which files become which split."""

import os
from pathlib import Path

import pytest

from datamodules.splits import SPLIT_NAMES
from datamodules.text_columns import Columns
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


def test_what_lies_beside_named_files_is_not_used_and_named(tmp_path: Path) -> None:
    make(tmp_path, "x/a.csv", "test.csv", "train_old.csv", ".git/x")
    sources = find_sources(tmp_path, {"train": "x/a.csv"})
    assert set(sources) == {"train"}
    assert sources["train"].notes == (
        f"not used below {tmp_path}: test.csv, train_old.csv",
        "1 hidden files or folders are not read: .git",
    )


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


@pytest.mark.parametrize("names", [[], ["a.csv", "b.csv"], ["pos.txt", "neg.txt", "README.md"]])
def test_an_unknown_layout_is_an_error(tmp_path: Path, names: list[str]) -> None:
    """Also no readme that becomes a class of its own."""
    with pytest.raises(FileNotFoundError, match="no layout that is known"):
        find_sources(make(tmp_path, *names), NOTHING)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_sources(tmp_path / "nowhere", NOTHING)


def notes(root: Path, **options: object) -> list[str]:
    return list(find_sources(root, NOTHING, **options)["train"].notes)  # type: ignore[arg-type]


def test_what_is_not_used_is_named(tmp_path: Path) -> None:
    make(tmp_path, "train/a/1.txt", "train/b/1.txt", "train/b/1.pdf", "train/more.txt", "old/x.txt",
         "train/unsup/1.txt", "readme.md", "train_test.csv")  # fmt: skip
    (tmp_path / "train" / "a" / "loop").symlink_to(tmp_path)
    (line,) = notes(tmp_path, ignored_folders=("unsup",))
    assert line == (
        f"not used below {tmp_path}: old, readme.md, train/a/loop, train/b/1.pdf, train/more.txt "
        "and 2 more"
    )
    assert notes(make(tmp_path / "all", "a/1.txt", "b/c/1.txt")) == []


def test_hidden_files_are_skipped_and_counted_at_every_depth(tmp_path: Path) -> None:
    hidden = [".git/config", "__MACOSX/a/1.txt", "a/.ipynb_checkpoints/1.txt", "a/._1.txt",
              "b/c/.x/2.txt", "b/c/__MACOSX/2.txt"]  # fmt: skip
    make(tmp_path, "a/1.txt", "b/c/1.txt", *hidden)
    source = find_sources(tmp_path, NOTHING)["train"]
    assert [path.name for path in source.files] == ["1.txt", "1.txt"]
    assert source.notes == (
        "6 hidden files or folders are not read: .git, __MACOSX, a/._1.txt, a/.ipynb_checkpoints, "
        "b/c/.x and 1 more",
    )


@pytest.mark.parametrize(
    ("names", "split", "held"),
    [
        (["test/1.txt"], "test", "no class folders, but 1 .txt"),
        (
            ["test/1.txt", "test/2.txt", "test/a.csv"],
            "test",
            "no class folders, but 2 .txt, 1 .csv",
        ),
        (["val/1.txt", "val/2.txt"], "val", "no class folders, but 2 .txt"),
        (["validation/.hidden"], "val", "no class folders, but nothing"),
    ],
)
def test_a_split_without_classes_is_left_for_prediction(
    tmp_path: Path, names: list[str], split: str, held: str
) -> None:
    sources = find_sources(make(tmp_path, "train/a/1.txt", "train/b/2.txt", *names), NOTHING)
    assert set(sources) == {"train"}
    assert sources["train"].notes[-1] == (
        f"{Path(names[0]).parent} has no labels ({held}): it is left for predict.py, and {split} "
        "is cut from train"
    )


@pytest.mark.parametrize(
    ("train", "test", "columns", "problem"),
    [
        ("text,label\nx,y\n", "id,text\n1,x\n", Columns(),
         "no column is told to hold the label; its columns are 0 (id), 1 (text)"),
        ("text,label\nx,y\n", "text\nx\n", Columns(),
         "no column is told to hold the label; its columns are 0 (text)"),
        ("comment,kind\nx,y\n", "comment,id\nx,1\n", Columns(("comment",), "kind"),
         "no column 'kind'; its columns are 0 (comment), 1 (id)"),
        ("x,y\n", "x\n", Columns((0,), 1), "no column 1; its columns are 0 (x)"),
    ],
)  # fmt: skip
def test_a_table_without_labels_is_left_for_prediction(
    tmp_path: Path, train: str, test: str, columns: Columns, problem: str
) -> None:
    """As competitions give it."""
    (tmp_path / "train.csv").write_text(train)
    (tmp_path / "test.csv").write_text(test)
    sources = find_sources(tmp_path, NOTHING, columns=columns)
    assert set(sources) == {"train"}
    assert sources["train"].notes == (
        f"test.csv has no labels ({problem}): it is left for predict.py, and test is cut from "
        "train",
    )
    chosen = {"train": "train.csv", "test": "test.csv"}
    assert set(find_sources(tmp_path, chosen, columns=columns)) == {"train", "test"}  # an error


def test_what_is_wrong_with_train_is_told_first(tmp_path: Path) -> None:
    make(tmp_path, "dev.csv")
    (tmp_path / "train.csv").write_text("a,b\nx,y\n")
    with pytest.raises(ValueError, match=r"train.csv: no column is told to hold the text"):
        find_sources(tmp_path, NOTHING)


@pytest.mark.parametrize("names", [["dev/1.txt", "ops/2.txt"], ["test.txt", "pos.txt", "neg.txt"]])
def test_a_class_that_is_called_like_a_split_is_named(tmp_path: Path, names: list[str]) -> None:
    (line,) = notes(make(tmp_path, *names))
    assert line == f"{Path(names[0]).parts[0]} is taken for a class: nothing is called train"


def test_a_test_split_whose_text_is_not_found_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\nx,y\n")
    (tmp_path / "test.csv").write_text("words,label\nx,y\n")
    with pytest.raises(ValueError, match="no column is told to hold the text"):
        find_sources(tmp_path, NOTHING)


@pytest.mark.parametrize("names", [["test.csv"], ["val.csv", "test.csv"], ["dev/a/1.txt"]])
def test_a_test_split_alone_is_not_trained_on(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"has .*, but nothing that is called train"):
        find_sources(make(tmp_path, *names), NOTHING)


@pytest.mark.parametrize("word", SPLIT_NAMES)
def test_a_split_has_the_same_names_as_with_pictures(tmp_path: Path, word: str) -> None:
    split = SPLIT_NAMES[word]
    names = [f"{word.title()}.csv"] + ([] if split == "train" else ["train.csv"])
    assert set(find_sources(make(tmp_path, *names), NOTHING)) == {"train", split}


@pytest.mark.parametrize("names", [["val.csv", "valid.csv"], ["dev.csv", "validation/a/1.txt"]])
def test_two_vals_are_an_error(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(ValueError, match="could each be val; choose one by --data.val_file"):
        find_sources(make(tmp_path, "train.csv", *names), NOTHING)
