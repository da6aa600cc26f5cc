import pytest

from datamodules.findings import texts
from datamodules.image_layout import list_folder
from datamodules.image_listing import natural_order
from datamodules.image_table import list_table
from datamodules.splits import SPLIT_NAMES
from tests.datamodules.pictures import save_picture, save_tree


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


@pytest.mark.parametrize("ending", [".jfif", ".JPE"])
def test_pictures_are_taken_by_each_ending_of_their_format(tmp_path, ending):
    save_tree(tmp_path, {"a": 1, "b": 1})
    for name in ("a", "b"):
        save_picture(tmp_path / name / "0.jpg", 9).rename(tmp_path / name / f"1{ending}")
    found = list_folder(tmp_path)
    assert len(found.splits["train"].paths) == 4
    assert not [note for note in texts(found.findings) if "ignored" in note]
