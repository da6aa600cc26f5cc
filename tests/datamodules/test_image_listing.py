import os
from pathlib import Path

import pytest

from datamodules import image_listing
from datamodules.image_listing import list_folder, list_table, natural_order
from datamodules.splits import SPLIT_NAMES
from tests.datamodules.pictures import save_picture, save_tree


def files(listing, split: str) -> list[str]:
    return [Path(os.fsdecode(path)).name for path in listing.splits[split].paths]


def test_splits_are_matched_by_class_name(tmp_path):
    """A val split that lacks the first class keeps the labels of train."""
    save_tree(tmp_path, {"train/a": 2, "train/b": 2, "train/c": 1, "val/b": 1, "val/c": 2})
    listing = list_folder(tmp_path)
    assert listing.class_names == ["a", "b", "c"]
    assert listing.splits["train"].targets.tolist() == [0, 0, 1, 1, 2]
    assert listing.splits["val"].targets.tolist() == [1, 2, 2]
    assert "3 classes: 0 a, 1 b, 2 c" in listing.notes


def test_a_class_that_only_val_has_is_an_error(tmp_path):
    save_tree(tmp_path, {"train/a": 1, "train/b": 1, "val/b": 1, "val/d": 1})
    with pytest.raises(ValueError, match="val: class 'd' is not in train, which has a, b"):
        list_folder(tmp_path)


def test_an_empty_class_is_allowed_in_val(tmp_path):
    save_tree(tmp_path, {"train/a": 1, "train/b": 1, "val/b": 1, "val/a": 0, "val/d": 0})
    assert list_folder(tmp_path).splits["val"].targets.tolist() == [1]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["1", "10", "2"], ["1", "2", "10"]),
        (["1", "10", "two"], ["1", "10", "two"]),
        (["b", "a"], ["a", "b"]),
        (["02", "1"], ["1", "02"]),
    ],
)
def test_all_numeric_names_are_ordered_by_value(names, expected):
    assert natural_order(names) == expected


def test_all_problems_of_a_tree_come_in_one_error(tmp_path):
    save_tree(tmp_path, {"good": 1, "empty": 0, "phone": 0})
    (tmp_path / "phone" / "1.heic").write_bytes(b"x")
    (tmp_path / "phone" / "2.heic").write_bytes(b"x")
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        list_folder(tmp_path)
    message = str(caught.value)
    assert f"{tmp_path / 'empty'}: empty" in message
    assert f"{tmp_path / 'phone'}: no pictures, only 2 .heic" in message
    assert ".jpg" in message


def test_files_of_other_kinds_are_counted(tmp_path):
    save_tree(tmp_path, {"a": 1, "b": 1})
    (tmp_path / "a" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "a" / ".hidden.png").write_bytes(b"x")
    listing = list_folder(tmp_path)
    assert "files that are no pictures were ignored: 1 .db" in listing.notes
    assert files(listing, "train") == ["0.png", "0.png"]


def test_val_without_train_is_an_error(tmp_path):
    save_tree(tmp_path, {"val/a": 1, "val/b": 1})
    with pytest.raises(ValueError, match="has val but no train folder"):
        list_folder(tmp_path)


def test_pictures_without_class_folders_are_an_error(tmp_path):
    save_picture(tmp_path / "1.png")
    with pytest.raises(ValueError, match="no class folders"):
        list_folder(tmp_path)


def test_links_that_lead_back_are_not_followed(tmp_path):
    save_tree(tmp_path, {"train/a": 1, "train/b": 1, "elsewhere": 1})
    os.symlink(tmp_path / "train", tmp_path / "train" / "a" / "up")
    os.symlink(tmp_path / "train" / "a", tmp_path / "train" / "a" / "self")
    os.symlink(tmp_path / "elsewhere", tmp_path / "train" / "b" / "more")
    assert list_folder(tmp_path).splits["train"].targets.tolist() == [0, 1, 1]


def test_an_unreadable_folder_is_named(tmp_path, monkeypatch):
    save_tree(tmp_path, {"a": 1, "b": 1})
    walk = os.walk

    def refusing(folder, onerror, **options):
        if Path(folder).name == "b":
            onerror(PermissionError(13, "Permission denied", str(folder)))
            return iter(())
        return walk(folder, onerror=onerror, **options)

    monkeypatch.setattr(image_listing.os, "walk", refusing)
    with pytest.raises(ValueError, match=r"b: cannot be read \(Permission denied\)"):
        list_folder(tmp_path)


def test_a_table_with_byte_order_mark_and_splits(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(
        "path,label,split\nx.png,10,train\nsub/y.png,2,train\nz.png,2,val\n", encoding="utf-8-sig"
    )
    listing = list_table(path)
    assert listing.class_names == ["2", "10"]
    assert listing.splits["train"].paths[0] == os.fsencode(tmp_path / "sub/y.png")
    assert listing.splits["train"].targets.tolist() == [0, 1]
    assert listing.splits["val"].targets.tolist() == [0]


def test_faults_of_a_table_come_with_their_lines(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("path,label,split\na.png,x,train\n,x,train\nb.png,x,tset\nc.png,z,val\n")
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        list_table(path)
    message = str(caught.value)
    assert "line 3: path ''" in message
    assert "line 4:" in message
    assert "'tset'" in message
    assert "val: class 'z' is not in train" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no rows of train"),
        ("a.png,x,val\n", "no rows of train"),
        ("x" * (1 << 25), "line 2: field larger than field limit"),
        ('"a.png,x,train\n', "line 2: path"),
    ],
)
def test_a_table_that_names_no_pictures_is_an_error(tmp_path, content, message):
    path = tmp_path / "labels.csv"
    path.write_text("path,label,split\n" + content)
    with pytest.raises(ValueError, match=message):
        list_table(path)


def test_a_class_name_must_be_utf8(tmp_path):
    save_tree(tmp_path, {"a": 1, "b": 1})
    (tmp_path / "b").rename(tmp_path / os.fsdecode(b"caf\xe9"))
    with pytest.raises(ValueError, match=r"the class name 'caf\\udce9' is not UTF-8"):
        list_folder(tmp_path)


def test_a_table_without_header_is_an_error(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("a.png,x\n")
    with pytest.raises(ValueError, match="no column label and path; .* got a.png, x"):
        list_table(path)


@pytest.mark.parametrize("name", [*SPLIT_NAMES, "VALID", "Test"])
def test_a_split_has_the_same_names_in_folders_and_tables(tmp_path, name):
    """What one calls dev is not a class of its own in the other."""
    split = SPLIT_NAMES[name.lower()]
    folders = {"train": name} if split == "train" else {"train": "train", split: name}
    counts = {f"{folder}/{label}": 1 for folder in folders.values() for label in "ab"}
    found = list_folder(save_tree(tmp_path / "p", counts))
    assert set(found.splits) == {"train", split}
    table = tmp_path / "p" / "labels.csv"
    table.write_text(f"path,label,split\nx.png,a,train\ny.png,b,train\nz.png,a,{name}\n")
    assert len(list_table(table).splits[split].paths) == (3 if split == "train" else 1)
