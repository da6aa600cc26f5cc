"""Boxes of a table, and pictures scaled with the boxes in them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from preprocessing.images import decode_image
from preprocessing.reader import check_preprocessing, make_reader
from preprocessing.regions import decode_region, scaled_boxes

BOXES = ["x1", "y1", "x2", "y2"]
PLAN = {"kind": "region", "channels": 1, "height": 32, "width": 16, "boxes": BOXES}


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 80), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_a_box_is_scaled_with_its_picture(picture: Path) -> None:
    found = decode_region(picture, ("0", "16", "40.0", 64), PLAN)
    assert found["boxes"].dtype == np.float32
    assert found["boxes"].tolist() == [0, 8, 8, 32]
    alone = decode_image(picture, PLAN | {"resize": "exact", "resize_to": None})
    assert np.array_equal(found["images"], alone)


def test_a_picture_of_the_model_s_size_leaves_boxes_as_they_are() -> None:
    boxes = np.random.default_rng(0).uniform(0, 64, (9, 4)).astype(np.float32)
    assert np.array_equal(scaled_boxes(boxes, (64, 48), (64, 48)), boxes)


def test_boxes_are_of_the_upright_picture(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    Image.new("L", (80, 64)).save(tmp_path / "turned.jpg", exif=exif)
    plan = PLAN | {"height": 80, "width": 64}
    box = decode_region(tmp_path / "turned.jpg", (0, 0, 64, 80), plan)["boxes"]
    assert box.tolist() == [0, 0, 64, 80]


BAD = [
    (("a", 1, 2, 3), "x1 is 'a', expected a number of pixels"),
    (("", 1, 2, 3), "x1 is '', expected a number"),
    ((0, True, 2, 3), "y1 is 'True', expected a number"),
    ((0, None, 2, 3), "y1 is 'None', expected a number"),
    ((0, 0, "nan", 3), "x2 is 'nan', expected a number"),
    ((0, 0, 2, "1e999"), "y2 is '1e999', expected a number"),
    ((5, 0, 5, 3), "x2 is 5 and x1 5: a box has x1 below x2"),
    ((0, 9, 5, 3), "y2 is 3 and y1 9: a box has y1 below y2"),
    ((-1, 0, 5, 3), "reaches from x1 -1 to x2 5, and the picture is 80 pixels wide"),
    ((0, 0, 80.5, 3), "reaches from x1 0 to x2 80.5, and the picture is 80 pixels wide"),
    ((0, 0, 80, 65), "reaches from y1 0 to y2 65, and the picture is 64 pixels high"),
]


@pytest.mark.parametrize(("box", "message"), BAD)
def test_a_bad_box_is_said(picture: Path, box: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_region(picture, box, PLAN)


def test_the_reader_asks_for_the_columns_of_the_box(picture: Path) -> None:
    reader = make_reader(PLAN, str)
    assert reader.columns == ("x1", "y1", "x2", "y2")
    samples = [reader.read(picture, 0, 0, side, side) for side in (8, 64)]
    inputs = reader.collate(samples)
    assert {name: array.shape for name, array in inputs.items()} == {
        "images": (2, 1, 32, 16),
        "boxes": (2, 4),
    }


@pytest.mark.parametrize("boxes", [None, "x1", ["x1", "y1", "x2"], ["x1", "y1", "x2", 4]])
def test_four_columns_make_a_box(boxes: Any) -> None:
    with pytest.raises(ValueError, match="names the columns of a box .*expected four texts"):
        check_preprocessing(PLAN | {"boxes": boxes}, {})
