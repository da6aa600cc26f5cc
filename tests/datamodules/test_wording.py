import os

import pytest

from datamodules.wording import listing, printable, quantity


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [
        (1, "image", "1 image"),
        (0, "image", "0 images"),
        (2, "picture of one colour", "2 pictures of one colour"),
        (1, "picture of one colour", "1 picture of one colour"),
        (12_345, "entry", "12,345 entries"),
        (2, "key", "2 keys"),
        (2, "class of train", "2 classes of train"),
        (2, "box", "2 boxes"),
        (2, "animation, of which one frame", "2 animations, of which one frame"),
    ],
)
def test_the_first_word_is_counted(count: int, noun: str, expected: str) -> None:
    assert quantity(count, noun) == expected


def test_every_name_can_be_printed() -> None:
    assert printable("ü漢 a") == "ü漢 a"
    assert printable(os.fsdecode(b"caf\xe9")).encode() == rb"caf\udce9"


def test_long_lists_are_cut() -> None:
    assert listing(["a", "b", "c"], limit=2) == "a, b and 1 more"
