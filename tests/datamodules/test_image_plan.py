"""What happens to pictures of other sizes and of more than 8 bits, in training as in a bundle."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datamodules.data_check import check_data
from datamodules.findings import texts
from datamodules.image_folder import ImageFolder
from datamodules.image_plan import wide_range
from datamodules.packed_images import FileImages
from preprocessing.images import decode_image
from preprocessing.reader import make_reader
from tests.datamodules.pictures import save_picture, save_tree


def folder(root: Path, **arguments) -> ImageFolder:
    arguments = {"cache_dir": str(root.parent / "cache"), "image_size": 16} | arguments
    return ImageFolder(str(root), **arguments)


def save_edges(path: Path, size: tuple[int, int]) -> Path:
    """Black, with white ends that a cut through the middle leaves out; `size` is (H, W)."""
    pixels = np.zeros((*size, 3), np.uint8)
    pixels[:, : size[1] // 5], pixels[:, -(size[1] // 5) :] = 255, 255
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


# ---- size -----------------------------------------------------------------------------------


@pytest.mark.parametrize("resize", ["auto", "resize_crop"])
@pytest.mark.parametrize("split", ["val", "test"])
def test_a_picture_of_another_shape_is_cut_and_never_stretched(tmp_path, resize, split):
    """Also where all training pictures have the size that is asked for."""
    root = save_tree(
        tmp_path / "p", {"train/a": 5, "train/b": 5, "val/a": 1, "test/a": 1}, (16, 16)
    )
    save_edges(root / split / "b" / "wide.png", (16, 80))
    data = folder(root, resize=resize)
    inputs, targets = data.samples(split)
    assert (inputs["images"][targets == 1] == 0).all()
    assert any("1 picture of another size, fitted" in note for note in texts(data.findings))
    stretched = folder(root, resize="exact").samples(split)[0]["images"][targets == 1]
    assert (stretched == 255).any()


def test_auto_leaves_pictures_of_one_size_alone_and_an_asked_cut_is_made(tmp_path):
    root = save_tree(tmp_path / "p", {"a": 10, "b": 10}, (16, 16))
    stored = {np.asarray(Image.open(p)).transpose(2, 0, 1).tobytes() for p in root.rglob("*.png")}
    for resize, is_same in (("auto", True), ("exact", True), ("resize_crop", False)):
        images = folder(root, resize=resize).samples("train")[0]["images"]
        assert ({image.tobytes() for image in images} <= stored) == is_same, resize
    assert folder(root, resize_to=20).preprocessing["resize_to"] == 20


@pytest.mark.parametrize("resize", ["auto", "exact", "resize_crop"])
@pytest.mark.parametrize("cache", [1.0, 0.0])
def test_packed_and_predicted_pixels_are_the_same_for_every_policy(tmp_path, resize, cache):
    """Also for a picture of the network's size among others."""
    root = save_tree(
        tmp_path / "p", {"train/a": 5, "train/b": 5, "test/a": 1, "test/b": 1}, (20, 30)
    )
    for number, size in enumerate([(16, 16), (16, 40), (7, 90), (1, 200)]):
        save_picture(root / "val" / "ab"[number % 2] / f"{number}.png", size=size)
    data = folder(root, resize=resize, cache_gigabytes=cache)
    assert isinstance(data.splits.val, FileImages) == (cache == 0)
    expected = {
        decode_image(p, data.preprocessing).tobytes() for p in (root / "val").rglob("*.png")
    }
    assert {image.tobytes() for image in data.samples("val")[0]["images"]} == expected


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"resize_to": 15}, "--data.resize_to must be 16 to 9459, got 15"),
        ({"resize_to": 0}, "--data.resize_to must be"),
        ({"resize_to": -1, "image_size": None}, "--data.resize_to must be 1 to"),
        ({"resize_to": 20, "resize": "exact"}, "goes with --data.resize resize_crop, not with exa"),
        ({"levels": [3]}, "--data.levels must be the lowest and the highest value"),
        ({"levels": [9, 9]}, "--data.levels must be the lowest and the highest value, got"),
    ],
)
def test_sizes_and_levels_that_cannot_be(tmp_path, arguments, match):
    with pytest.raises(ValueError, match=match):
        folder(tmp_path, **arguments)


def test_a_cut_larger_than_the_scaled_picture_is_an_error(tmp_path):
    root = save_tree(tmp_path / "p", {"a": 10, "b": 10}, (16, 16))
    with pytest.raises(ValueError, match="--data.resize_to 10 is smaller than the 16x16"):
        folder(root, image_size=None, resize_to=10).setup()
    with pytest.raises(ValueError, match="--data.resize_to must be 224 to 9459, got 20"):
        folder(root, image_size=None, resize_to=20, weights="ResNet50_Weights.IMAGENET1K_V2")


def test_what_was_asked_for_goes_before_what_pretrained_weights_ask_for(tmp_path):
    root = save_tree(tmp_path / "p", {"a": 10, "b": 10}, (16, 16))
    data = folder(root, image_size=None, resize_to=240, weights="ResNet50_Weights.IMAGENET1K_V2")
    assert data.preprocessing["resize_to"] == 240


# ---- more than 8 bits -----------------------------------------------------------------------


def save_deep(root: Path, low: int, high: int, dtype: type, suffix: str = "png") -> Path:
    """Two classes of 20 ramps from low to high in shuffled order, which all hold both ends."""
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(20):
            ramp = generator.permutation(np.linspace(low, high, 256).round())
            image = Image.fromarray(ramp.reshape(16, 16).astype(dtype))
            image.save(root / name / f"{number}.{suffix}")
    return root


RANGES = {
    "12 bits": (0, 4095, np.uint16, "png", [0, 4095]),
    "nearly 12 bits": (7, 3900, np.uint16, "png", [0, 4095]),
    "a narrow band": (30_000, 31_000, np.uint16, "png", [30_000, 31_000]),
    "16 bits": (0, 65_535, np.uint16, "png", [0, 65_535]),
    "32 bits": (0, 1_000_000, np.int32, "tif", [0, 1_048_575]),
    "below zero": (-1024, 3071, np.int32, "tif", [-1024, 3071]),
    "all below zero": (-900, -100, np.int32, "tif", [-900, -100]),
}


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("channels", [1, 3])
def test_the_range_of_deep_pictures_is_found_said_and_used_by_the_bundle(tmp_path, name, channels):
    low, high, dtype, suffix, levels = RANGES[name]
    root = save_deep(tmp_path / "p", low, high, dtype, suffix)
    data = folder(root, channels=channels)
    images = data.samples("train")[0]["images"]
    assert len(np.unique(images[0])) > 235
    assert images.min() <= 1
    assert images.max() >= 242
    assert data.preprocessing["levels"] == levels
    assert any(
        f"values {levels[0]:,} to {levels[1]:,} become 0 to 255" in n for n in texts(data.findings)
    )
    reader = make_reader(data.preprocessing, str)
    predicted = {reader.read(path).tobytes() for path in root.rglob(f"*.{suffix}")}
    assert {image.tobytes() for image in images} <= predicted
    assert not +reader.counts


def test_values_outside_of_the_range_are_clipped_counted_and_said(tmp_path):
    root = save_deep(tmp_path / "p" / "train", 0, 4095, np.uint16)
    save_deep(tmp_path / "p" / "val", 0, 9000, np.uint16)
    data = folder(root.parent)
    data.setup()
    assert any(
        n.startswith("val: 40 pictures with values outside of the range")
        for n in texts(data.findings)
    )
    assert data.samples("val")[0]["images"].max() == 255
    reader = make_reader(data.preprocessing, str)
    reader.read(root.parent / "val" / "a" / "0.png")
    assert +reader.counts == {"outside": 1}
    wider = folder(root.parent, levels=[0, 9000])
    assert wider.preprocessing["levels"] == [0, 9000]
    assert not any("outside" in note for note in texts(wider.findings))
    assert wider.fingerprint != data.fingerprint


def test_deep_pictures_that_training_did_not_show_are_said(tmp_path):
    root = save_tree(
        tmp_path / "p", {"train/a": 5, "train/b": 5, "test/a": 1, "test/b": 1}, (16, 16)
    )
    save_deep(root / "val", 0, 4095, np.uint16)
    data = folder(root)
    assert "levels" not in data.preprocessing
    assert any(
        note.startswith("val: 40 pictures of more than 8 bits") for note in texts(data.findings)
    )
    reader = make_reader(data.preprocessing, str)
    reader.read(root / "val" / "a" / "0.png")
    assert +reader.counts == {"deep": 1}


def test_ordinary_pictures_keep_their_plan_and_pixels(tmp_path):
    root = save_tree(tmp_path / "p", {"a": 10, "b": 10}, (16, 16))
    assert "levels" not in folder(root).preprocessing
    asked = folder(root, levels=[0, 9])
    assert asked.fingerprint == folder(root).fingerprint
    assert any("of which those looked at first are none" in note for note in texts(asked.findings))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 255, [0, 255]),
        (0, 300, [0, 511]),
        (200, 300, [200, 300]),
        (-1, 4095, [-1, 4095]),
        (5, 5, None),
        (0, 0, None),
        (0, 2**31 - 1, [0, 2**31 - 1]),
    ],
)
def test_a_range_is_widened_to_whole_bits_only_where_it_nearly_fills_them(low, high, expected):
    assert wide_range(low, high) == expected


def test_the_full_check_reads_deep_pictures_as_training_does(tmp_path):
    """By their upper bits alone, a narrow band would be one and the same picture."""
    root = tmp_path / "p"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for number in range(20):
            values = np.full((16, 16), 30_000, np.uint16)
            values.flat[number + 20 * (name == "b")] = 30_100
            Image.fromarray(values).save(root / name / f"{number}.png")
    data = folder(root)
    data.setup()
    check_data(data, "full", tmp_path)
    report = json.loads((tmp_path / "data_check.json").read_text())
    assert not report["errors"]
    assert not any("equal" in warning for warning in report["warnings"])
    assert len(set(data.splits.train.hashes)) == len(data.splits.train)
