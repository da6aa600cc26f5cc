import numpy as np
import pytest

from datamodules.findings import note, texts, warning
from datamodules.image_splits import (
    ImageSplits,
    check_labels,
    cut_off,
    drop_duplicates,
)
from datamodules.packed_images import PackedImages


def split(targets: list[int], first: int = 0) -> PackedImages:
    """Image number n is filled with first + n."""
    images = np.arange(first, first + len(targets), dtype=np.uint8)[:, None, None, None]
    return PackedImages(np.tile(images, (1, 1, 2, 2)), np.array(targets, dtype=np.int64))


def splits(train: list[int], val: list[int], test: list[int], names: str = "abc") -> ImageSplits:
    return ImageSplits(list(names), split(train), split(val, 100), split(test, 200))


@pytest.mark.parametrize(
    ("train", "val", "match"),
    [
        ([1, 2, 3, 0], [0], r"train: label 3 in row 2 lies outside 0\.\.2; labels count"),
        ([0, 1, -1, 2, -1], [0], r"train: label -1 in row 2 .*\(2 such rows\)"),
        ([0, 1, 2], [7], "val: label 7 in row 0"),
        ([0, 1, 0], [0], "train: no images of c"),
    ],
)
def test_labels_are_checked_before_training(train, val, match):
    with pytest.raises(ValueError, match=match):
        check_labels(splits(train, val, [0]))


@pytest.mark.parametrize("empty", ["train", "val", "test"])
def test_an_empty_split_is_an_error_with_what_is_known_of_it(empty):
    """Before training, also for test, which nothing asks for until training has ended."""
    given = splits(*([] if name == empty else [0, 1, 2] for name in ("train", "val", "test")))
    found = [
        note("3 classes"),
        warning("train: 9 pictures of one colour"),
        warning("9 images dropped"),
    ]
    with pytest.raises(ValueError, match=f"{empty}: no images") as caught:
        check_labels(given, found)
    assert str(caught.value).splitlines()[2:] == [
        "  found: train: 9 pictures of one colour",
        "  found: 9 images dropped",
    ]


def test_all_faults_come_in_one_error():
    with pytest.raises(ValueError, match="(?s)train: label 9.*val: label 5"):
        check_labels(splits([0, 1, 2, 9], [5], [0]))


def test_one_class_is_too_few():
    with pytest.raises(ValueError, match="at least two classes"):
        check_labels(splits([0, 0], [0], [0], names="a"))


def test_a_class_may_lack_in_val_and_test():
    assert texts(check_labels(splits([0, 1, 2], [0, 1], [2]))) == [
        "val has no images of c",
        "test has no images of a, b",
    ]
    assert check_labels(splits([0, 1, 2], [0, 1, 2], [0, 1, 2])) == []


def test_duplicates_within_train_stay():
    images = np.zeros((4, 1, 2, 2), np.uint8)
    images[3] = 5
    same = PackedImages(images, np.array([0, 0, 1, 1]))
    other = split([0, 1], first=50)
    kept, findings = drop_duplicates(ImageSplits(["a", "b"], same, other, other), keep=False)
    assert len(kept.train) == 4
    assert texts(findings) == [
        "1 pair of equal images with different labels: train a / train b",
        "2 images of val that test holds as well",
    ]


def test_cut_off_is_stratified_and_disjoint():
    whole = split([0] * 20 + [1] * 10)
    rest, share = cut_off(whole, 0.2, seed=0)
    assert np.bincount(share.targets).tolist() == [4, 2]
    assert not set(rest.hashes) & set(share.hashes)
    assert len(rest) == 24
