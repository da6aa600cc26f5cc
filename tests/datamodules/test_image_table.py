"""Lists of pictures: what is read, and what a damaged one can never become."""

import os
from pathlib import Path

import pytest

from datamodules.findings import texts
from datamodules.image_table import list_table


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


def test_the_columns_are_found_however_their_names_are_written(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("Path, LABEL ,Split,Id\na.png,x,train,1\nb.png,x,test,2\n")
    listing = list_table(path)
    assert {split: len(images.paths) for split, images in listing.splits.items()} == {
        "train": 1,
        "test": 1,
    }
    assert "labels.csv: columns that are not used: Id" in texts(listing.findings)
    path.write_text("path,label,Path\na.png,x,b.png\n")
    with pytest.raises(ValueError, match="the column path comes 2 times"):
        list_table(path)


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


def test_a_class_that_val_writes_differently_is_named(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("path,label,split\na.png,Cat,train\nb.png,cat,val\n")
    with pytest.raises(ValueError, match="differs from 'Cat' only in case: give them") as caught:
        list_table(path)
    assert "no labels" not in str(caught.value)
    assert "--data.join_labels" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no rows of train"),
        ("a.png,x,val\n", "no rows of train"),
        ("x" * (1 << 25), "line 2: field larger than field limit"),
        ('"a.png,x,train\n', "line 2: a quote that opens in this row is never closed"),
    ],
)
def test_a_table_that_names_no_pictures_is_an_error(tmp_path, content, message):
    path = tmp_path / "labels.csv"
    path.write_text("path,label,split\n" + content)
    with pytest.raises(ValueError, match=message):
        list_table(path)


def test_a_table_without_header_is_an_error(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("a.png,x\n")
    with pytest.raises(ValueError, match="no column label and path; .* got a.png, x"):
        list_table(path)


def written(folder: Path, *rows: str, header: str = "path,label,split") -> Path:
    path = folder / "labels.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


GOOD = ["a.png,x,train", "b.png,y,train"]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ('"c.png,x,train', "line 4: a quote that opens in this row is never closed"),
        ('c.png,"x,train', "line 4: a quote that opens in this row is never closed"),
        ('c.png,"x,train\nd.png,y,train\ne.png,"y",train', "line 4: ',' expected after"),
        ('c.png,"x,train\nd.png,y",train', "line 4: the label 'x,train.nd.png,y' holds a line br"),
        ('"c.png\nd.png",y,train', "line 4: the path 'c.png.nd.png' holds a line break"),
        ('c.png,"x\ty",train', "line 4: the label 'x.ty' holds a line break or control"),
        (f"c.png,{'x' * 2000},train", "line 4: the label has 2,000 characters: 'xxx"),
        (f"{'x' * 5000},x,train", "line 4: the path has 5,000 characters"),
        (f'c.png,"{"x" * (1 << 25)},train', "line 4: field larger than field limit .* closed"),
        ("c,d.png,x,train", "line 4: 4 columns, the first line has 3"),
        ("c.png,x", "line 4: 2 columns, the first line has 3"),
        ("c.png", "line 4: 1 column, the first line has 3"),
    ],
)
def test_what_a_damaged_row_holds_never_becomes_a_class(tmp_path, row, fault):
    with pytest.raises(ValueError, match=fault):
        list_table(written(tmp_path, *GOOD, row))


def test_quotes_that_are_closed_are_read(tmp_path):
    listing = list_table(written(tmp_path, '"c, d.png","say ""x""",train', "", "e.png,y,train"))
    assert listing.class_names == ['say "x"', "y"]
    assert listing.splits["train"].paths[0] == os.fsencode(tmp_path / "c, d.png")


def test_a_column_that_comes_twice_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="the column label comes 2 times"):
        list_table(written(tmp_path, "a.png,x,y", header="path,label,label"))


def test_columns_that_are_not_used_and_rows_without_a_split_are_said(tmp_path):
    header = "path,fold,label,split"
    path = written(tmp_path, "a.png,1,x,train", "b.png,1,y,", "c.png,2,x,val", header=header)
    listing = list_table(path)
    assert {split: len(images.paths) for split, images in listing.splits.items()} == {
        "train": 2,
        "val": 1,
    }
    assert "labels.csv: columns that are not used: fold" in texts(listing.findings)
    assert "labels.csv: 1 row without a split taken for train" in texts(listing.findings)
    listing = list_table(path, "none")
    assert len(listing.splits["train"].paths) == 3
    assert "labels.csv: columns that are not used: fold, split" in texts(listing.findings)
