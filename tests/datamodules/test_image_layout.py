"""Trees as people lay them out: what is used, what is not, and what is said of it."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from datamodules import image_listing
from datamodules.findings import texts
from datamodules.image_folder import ImageFolder
from datamodules.image_layout import list_folder
from datamodules.image_listing import ImageListing
from tests.datamodules.pictures import save_picture, save_tree

SPLIT_TREE = {"train/a": 3, "train/b": 3}


def sizes(found: ImageListing) -> dict[str, int]:
    return {split: len(images.targets) for split, images in sorted(found.splits.items())}


def findings(found: ImageListing) -> str:
    return "\n".join(texts(found.findings, "warning"))


# ---- splits that cannot be used -------------------------------------------------------------


@pytest.mark.parametrize("split", ["val", "valid", "validation", "dev", "test", "testing", "Test"])
def test_pictures_without_class_folders_are_no_split_and_it_is_said(tmp_path, split):
    root = save_tree(tmp_path, SPLIT_TREE | {split: 5})
    found = list_folder(root)
    assert sizes(found) == {"train": 6}
    standard = "test" if split.lower().startswith("test") else "val"
    assert f"{root / split} holds 5 pictures but no class folders, so no labels" in findings(found)
    assert f"{standard} is cut from train instead" in findings(found)
    assert ("predict.py" in findings(found)) == (standard == "test")


@pytest.mark.parametrize("names", [["val/.keep"], ["test/readme.txt"], ["val/a/x.heic", "val/b/y"]])
def test_a_split_without_pictures_is_said_with_what_is_in_it(tmp_path, names):
    root = save_tree(tmp_path, SPLIT_TREE)
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    found = list_folder(root)
    assert sizes(found) == {"train": 6}
    split, kind = Path(names[0]).parts[0], Path(names[0]).suffix or ".keep"
    assert f"{root / split} holds no pictures, only 1 {kind}" in findings(found)
    assert f"{split} is cut from train instead" in findings(found)


def test_pictures_beside_class_folders_are_counted(tmp_path):
    root = save_tree(tmp_path, SPLIT_TREE | {"val/a": 1, "val": 2, "train": 3})
    save_picture(root / "cover.png")
    found = list_folder(root)
    assert sizes(found) == {"train": 6, "val": 1}
    for count, place in (("1 picture", root), ("2 pictures", root / "val"), ("3 pic", root)):
        assert f"not used: {count}" in findings(found)
        assert str(place) in findings(found)
    classes = save_tree(tmp_path / "other", {"a": 1, "b": 1, ".": 2})
    assert f"not used: 2 pictures directly in {classes}" in findings(list_folder(classes))


def test_a_fraction_that_was_given_for_a_split_that_is_there_is_said(tmp_path):
    root = save_tree(tmp_path / "p", {"train/a": 9, "train/b": 9, "val/a": 2, "val/b": 2})

    def notes(**fractions: float) -> str:
        data = ImageFolder(str(root), cache_dir=str(tmp_path / "cache"), **fractions)
        data.setup()
        return "\n".join(texts(data.findings))

    assert "--data.val_fraction 0.1 is not used: val is given" in notes(val_fraction=0.1)
    assert "not used" not in notes()
    assert "not used" not in notes(test_fraction=0.2)
    save_tree(root, {"test/a": 2})
    assert "--data.test_fraction 0.2 is not used: test is given" in notes(test_fraction=0.2)


# ---- names of splits ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [("val", "validation"), ("valid", "dev"), ("test", "testing"), ("train", "training")]
)
def test_two_folders_of_one_split_are_an_error(tmp_path, names):
    tree = {f"{name}/{label}": 1 for name in {*names, "train"} for label in "ab"}
    with pytest.raises(ValueError, match="could each be") as caught:
        list_folder(save_tree(tmp_path, tree))
    assert all(name in str(caught.value) for name in names)


def test_every_other_folder_beside_the_splits_is_named(tmp_path):
    root = save_tree(tmp_path, SPLIT_TREE | {"val/a": 1, "unlabelled": 4, "more/x": 2, "empty": 0})
    found = list_folder(root)
    assert sizes(found) == {"train": 6, "val": 1}
    for about in ("unlabelled (4 pictures)", "more (2 pictures)", "empty (0 pictures)"):
        assert about in findings(found)


@pytest.mark.parametrize("name", ["train", "test", "Val", "dev"])
def test_a_class_may_be_called_like_a_split(tmp_path, name):
    root = save_tree(tmp_path, {name: 4, "bus": 4, "car": 4})
    found = list_folder(root)
    assert found.class_names == sorted([name, "bus", "car"])
    assert f"{name} is taken for a class, like bus, car" in findings(found)


def test_a_train_with_class_folders_beside_other_classes_is_named_as_ambiguous(tmp_path):
    root = save_tree(tmp_path, {"train/steam": 2, "train/diesel": 2, "bus": 5})
    found = list_folder(root)
    assert found.class_names == ["diesel", "steam"]
    assert "bus (5 pictures)" in findings(found)
    assert "should train be a class like bus: --data.splits none" in findings(found)
    found = list_folder(root, "none")
    assert found.class_names == ["bus", "train"]
    assert sizes(found) == {"train": 9}
    assert not findings(found)


@pytest.mark.parametrize(
    ("tree", "match"),
    [
        ({"train": 6}, "no class folders: expected <class>/<picture>, found 6 pictures"),
        ({"train": 6, "test": 2}, "no class folders: expected <class>/<picture>, found 6"),
        ({"train": 6, "test": 2, "bus": 3}, "no class folders: expected"),
        ({"train": 6, "test/a": 2, "test/b": 3}, "no class folders: expected"),
        ({"train": 0, "a": 1, "val/a": 1}, "no class folders: expected"),
        ({"val": 3, "test": 3}, "has val, test but no train|has test, val but no train"),
        ({"val/a": 3, "bus": 3}, "has val but no train folder"),
    ],
)
def test_splits_without_classes_to_learn_are_an_error_with_the_way_out(tmp_path, tree, match):
    with pytest.raises(ValueError, match=match) as caught:
        list_folder(save_tree(tmp_path, tree))
    assert "--data.splits none takes every folder for a class" in str(caught.value)


# ---- hidden things --------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["", "train", "train/a", "train/a/deep", "val", "val/b"])
def test_what_is_hidden_is_left_out_at_every_depth_and_counted(tmp_path, place):
    root = save_tree(tmp_path, SPLIT_TREE | {"train/a/deep": 1, "val/a": 1, "val/b": 1})
    plain = sizes(list_folder(root))
    for name in (".x.png", "._0.png", "._1.png", ".ipynb_checkpoints/0.png", "__MACOSX/a/0.png"):
        save_picture(root / place / name)
    found = list_folder(root)
    assert sizes(found) == plain
    assert found.class_names == ["a", "b"]
    assert "hidden files and folders that were ignored: 5 (" in findings(found)
    assert "2 ._*" in findings(found)


def test_hidden_things_beside_the_one_folder_of_an_archive_are_counted(tmp_path):
    tree = save_tree(tmp_path / "top", {"a": 20, "b": 20})
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as file:
        for path in tree.rglob("*.png"):
            file.write(path, path.relative_to(tmp_path))
            file.write(path, Path("__MACOSX", path.relative_to(tmp_path)))
        file.write(path, "._top")
    data = ImageFolder(str(tmp_path / "p.zip"), cache_dir=str(tmp_path / "cache"))
    assert data.class_names == ["a", "b"]
    assert any("ignored: 2 (" in note and "1 __MACOSX" in note for note in texts(data.findings))


# ---- classes ---------------------------------------------------------------------------------


def files(listing, split: str) -> list[str]:
    return [Path(os.fsdecode(path)).name for path in listing.splits[split].paths]


def test_splits_are_matched_by_class_name(tmp_path):
    """A val split that lacks the first class keeps the labels of train."""
    save_tree(tmp_path, {"train/a": 2, "train/b": 2, "train/c": 1, "val/b": 1, "val/c": 2})
    listing = list_folder(tmp_path)
    assert listing.class_names == ["a", "b", "c"]
    assert listing.splits["train"].targets.tolist() == [0, 0, 1, 1, 2]
    assert listing.splits["val"].targets.tolist() == [1, 2, 2]
    assert "3 classes: 0 a, 1 b, 2 c" in texts(listing.findings)


def test_a_class_that_only_val_has_is_an_error(tmp_path):
    save_tree(tmp_path, {"train/a": 1, "train/b": 1, "val/b": 1, "val/d": 1})
    with pytest.raises(ValueError, match="val: class 'd' is not in train, which has a, b"):
        list_folder(tmp_path)


@pytest.mark.parametrize(("name", "is_said"), [("unknown", True), ("a", False)])
def test_a_split_without_any_class_of_train_may_be_unlabelled(tmp_path, name, is_said):
    save_tree(tmp_path, SPLIT_TREE | {"test/images": 3, f"test/{name}": 1})
    with pytest.raises(ValueError, match="test: class 'images' is not in train") as caught:
        list_folder(tmp_path)
    assert ("predict.py takes any folder" in str(caught.value)) == is_said


def test_an_empty_class_is_allowed_in_val(tmp_path):
    save_tree(tmp_path, {"train/a": 1, "train/b": 1, "val/b": 1, "val/a": 0, "val/d": 0})
    assert list_folder(tmp_path).splits["val"].targets.tolist() == [1]


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
    assert "files that are no pictures and were ignored: 1 (1 .db)" in texts(listing.findings)
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


def test_a_train_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    save_tree(tmp_path, SPLIT_TREE)
    listed = Path.iterdir

    def refusing(folder: Path) -> Iterator[Path]:
        if folder.name == "train":
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(image_listing.Path, "iterdir", refusing)
    with pytest.raises(ValueError, match=r"train: cannot be read \(Permission denied\)"):
        list_folder(tmp_path)


def test_a_class_name_must_be_utf8(tmp_path):
    save_tree(tmp_path, {"a": 1, "b": 1})
    (tmp_path / "b").rename(tmp_path / os.fsdecode(b"caf\xe9"))
    with pytest.raises(ValueError, match=r"the class name 'caf\\udce9' is not UTF-8"):
        list_folder(tmp_path)


@pytest.mark.parametrize("inside", ["", "train/"])
def test_a_folder_around_the_data_is_named(tmp_path, inside):
    save_tree(tmp_path, {f"data/{inside}a": 1, f"data/{inside}b": 1})
    with pytest.raises(ValueError, match=f"perhaps --data.root {tmp_path / 'data'}$"):
        list_folder(tmp_path)
