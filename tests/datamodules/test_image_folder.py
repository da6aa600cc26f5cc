import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules.data_check import check_data, notes_of
from datamodules.findings import texts
from datamodules.image_folder import ImageFolder
from datamodules.packed_images import FileImages, PackedImages
from preprocessing.images import decode_image
from tests.datamodules.pictures import save_picture, save_tree


def folder(root: Path, tmp_path: Path, **arguments) -> ImageFolder:
    return ImageFolder(str(root), cache_dir=str(tmp_path / "cache"), **arguments)


@pytest.fixture
def tree(tmp_path) -> Path:
    """One folder a class, 20 pictures each, 8x8."""
    return save_tree(tmp_path / "pictures", {"a": 20, "b": 20, "c": 20})


def test_one_tree_is_split_stratified_by_seed(tree, tmp_path):
    data = folder(tree, tmp_path, val_fraction=0.2, test_fraction=0.25)
    counts = [np.bincount(data.splits[name].targets).tolist() for name in ("train", "val", "test")]
    assert counts == [[12] * 3, [3] * 3, [5] * 3]
    again = folder(tree, tmp_path, val_fraction=0.2, test_fraction=0.25)
    assert again.fingerprint == data.fingerprint
    other = folder(tree, tmp_path, val_fraction=0.2, test_fraction=0.25, seed=1)
    assert other.fingerprint != data.fingerprint
    hashes = [set(data.splits[name].hashes) for name in ("train", "val", "test")]
    assert len(set.union(*hashes)) == 60


def test_given_splits_are_kept(tmp_path):
    names = {"train/a": 4, "train/b": 4, "val/a": 1, "val/b": 2, "test/b": 3}
    data = folder(save_tree(tmp_path / "pictures", names), tmp_path)
    assert [len(data.splits[name]) for name in ("train", "val", "test")] == [8, 3, 3]
    assert "test has no images of a" in texts(data.findings)


def test_pixels_are_those_of_the_decode_function(tree, tmp_path):
    data = folder(tree, tmp_path)
    inputs, targets = data.samples("train")
    assert inputs["images"].dtype == np.uint8
    expected = {decode_image(path, data.preprocessing).tobytes() for path in tree.rglob("*.png")}
    assert {image.tobytes() for image in inputs["images"]} <= expected
    assert isinstance(data.splits.train, PackedImages)
    assert isinstance(data.splits.train.images, np.memmap)


def test_val_is_not_augmented(tree, tmp_path):
    """Splits of one tree share no transform: only train is flipped."""
    data = folder(tree, tmp_path, horizontal_flip=True, batch_size=60)
    for batch in data.val_dataloader():
        inputs, targets = data.on_after_batch_transfer(batch, 0)
        images = inputs["images"]
        assert np.array_equal(images.numpy(), data.samples("val")[0]["images"])
    (batch,) = list(data.train_dataloader())
    inputs, targets = data.on_after_batch_transfer(batch, 0)
    images = inputs["images"]
    plain = {image.tobytes() for image in data.samples("train")[0]["images"]}
    unflipped = sum(image.numpy().tobytes() in plain for image in images)
    assert 0 < unflipped < len(images)


def test_the_second_run_decodes_nothing(tree, tmp_path, monkeypatch):
    first = folder(tree, tmp_path)
    first.setup()
    monkeypatch.setattr("datamodules.pixel_cache.read_image", None)
    again = folder(tree, tmp_path)
    assert again.fingerprint == first.fingerprint
    save_picture(tree / "a" / "0.png", 99)
    with pytest.raises(TypeError):  # a changed file is read again
        folder(tree, tmp_path).setup()


def stored_pixels(path: Path) -> bytes:
    """uint8 [C,H,W] as the file holds them."""
    return np.asarray(Image.open(path)).transpose(2, 0, 1).tobytes()


def test_one_common_size_is_taken_as_it_is(tmp_path):
    root = save_tree(tmp_path / "pictures", {"a": 5, "b": 5}, size=(6, 9))
    data = folder(root, tmp_path, val_fraction=0.3)
    assert data.image_shape == (3, 6, 9)
    assert data.preprocessing["resize"] == "resize_crop"
    assert data.preprocessing["resize_to"] is None
    pixels = {decode_image(path, data.preprocessing).tobytes() for path in root.rglob("*.png")}
    stored = {stored_pixels(path) for path in root.rglob("*.png")}
    assert pixels == stored == pixels | {x.tobytes() for x in data.samples("train")[0]["images"]}


def test_different_sizes_are_scaled_and_it_is_said(tree, tmp_path):
    save_picture(tree / "a" / "large.png", size=(40, 90))
    data = folder(tree, tmp_path)
    assert data.image_shape == (3, 64, 64)
    assert data.preprocessing["resize_to"] == 73
    assert any("--data.image_size" in note for note in texts(data.findings))


def test_a_chosen_size_and_policy(tree, tmp_path):
    data = folder(tree, tmp_path, image_size=12, resize="exact", channels=1)
    assert data.image_shape == (1, 12, 12)
    assert data.preprocessing == {
        "kind": "image", "channels": 1, "height": 12, "width": 12,
        "resize": "exact", "resize_to": None,
    }  # fmt: skip
    assert data.input_spec["inputs"][0]["shape"] == ["batch", 1, 12, 12]


def test_mixed_modes_become_one_batch(tmp_path):
    """Grey, transparent, palette, CMYK and one-pixel pictures in one batch."""
    for number, mode in enumerate(["L", "RGBA", "P", "1"]):
        save_picture(tmp_path / "p" / "a" / f"{number}.png", number, mode=mode)
        save_picture(tmp_path / "p" / "b" / f"{number}.jpg", number, mode="CMYK")
    save_picture(tmp_path / "p" / "a" / "point.png", size=(1, 1))
    data = folder(tmp_path / "p", tmp_path, val_fraction=0.3, test_fraction=0.3, image_size=8)
    inputs, targets = data.example_batch()
    images = inputs["images"]
    assert images.shape[1:] == (3, 8, 8)
    assert images.dtype == torch.uint8


def test_orientation_is_applied(tmp_path):
    """A picture stored on its side, left half red after turning."""
    upright = np.zeros((8, 8, 3), dtype=np.uint8)
    upright[:, :4, 0] = 255
    root = save_tree(tmp_path / "p", {"train/a": 2, "train/b": 2, "val/a": 2, "val/b": 1})
    stored = Image.fromarray(np.rot90(upright, 1).copy())  # turning clockwise restores it
    exif = Image.Exif()
    exif[0x0112] = 6
    stored.save(root / "val" / "b" / "turned.png", exif=exif)
    (tmp_path / "p" / "val" / "b" / "0.png").unlink()
    data = folder(root, tmp_path, test_fraction=0.3)
    inputs, targets = data.samples("val")
    turned = inputs["images"][targets == 1][0]
    assert (turned[0, :, :4] == 255).all()
    assert (turned[0, :, 4:] == 0).all()


def damage(tree: Path) -> dict[str, Path]:
    """Half a JPEG, an empty file, and text that is called .png."""
    whole = save_picture(tree / "a" / "half.jpg", size=(64, 64))
    whole.write_bytes(whole.read_bytes()[:400])
    (tree / "b" / "empty.png").write_bytes(b"")
    (tree / "c" / "text.png").write_text("not a picture")
    return {name: next(tree.rglob(name)) for name in ("half.jpg", "empty.png", "text.png")}


def test_unreadable_files_are_all_named_before_training(tree, tmp_path):
    damaged = damage(tree)
    with pytest.raises(ValueError, match="3 of 63 pictures cannot be read") as caught:
        folder(tree, tmp_path).setup()
    assert all(str(path) in str(caught.value) for path in damaged.values())
    assert "--data.skip_unreadable" in str(caught.value)


def test_unreadable_files_are_skipped_on_demand_and_reported(tree, tmp_path):
    damage(tree)
    data = folder(tree, tmp_path, skip_unreadable=True)
    assert sum(len(data.splits[name]) for name in ("train", "val", "test")) == 60
    assert any("3 pictures left out, as unreadable" in note for note in texts(data.findings))
    with pytest.raises(ValueError, match="cannot be read"):  # also from the cache
        folder(tree, tmp_path).setup()


def test_duplicates_across_splits_leave_train(tmp_path):
    root = save_tree(tmp_path / "p", {"train/a": 5, "train/b": 5, "val/a": 2, "test/b": 2})
    for number, place in enumerate(["val/a", "test/b", "train/b"]):
        (root / place / f"copy{number}.png").write_bytes((root / "train/a/0.png").read_bytes())
    data = folder(root, tmp_path)
    assert len(data.splits.train) == 9
    assert "2 images of train that val or test holds as well: dropped from train" in texts(
        data.findings
    )
    assert "1 image of val that test holds as well" in texts(data.findings)
    kept = folder(root, tmp_path, keep_duplicates=True)
    assert len(kept.splits.train) == 11


def test_random_crops_come_from_whole_pictures_in_workers(tmp_path):
    names = {"train/a": 6, "train/b": 6, "val/a": 2, "val/b": 2}
    root = save_tree(tmp_path / "p", names, size=(30, 40))
    data = folder(root, tmp_path, image_size=8, random_resized_crop=0.3, batch_size=6,
                  test_fraction=0.2)  # fmt: skip
    assert isinstance(data.splits.train, FileImages)
    assert isinstance(data.splits.val, PackedImages)
    epochs = []
    for workers in (0, 2):
        data.num_workers = workers
        loader = data.train_dataloader()
        batches = list(loader)
        assert batches[0][0]["images"].shape == (6, 3, 8, 8)
        loader.batch_sampler.set_epoch(1)
        epochs.append([batches, list(loader)])
    for alone, with_workers in zip(*epochs, strict=True):
        for (x, y), (x2, y2) in zip(alone, with_workers, strict=True):
            assert torch.equal(x["images"], x2["images"])
            assert torch.equal(y, y2)
    first, second = epochs[0]
    assert not torch.equal(first[0][0]["images"], second[0][0]["images"])


def test_beyond_the_budget_pictures_are_decoded_in_workers(tree, tmp_path):
    data = folder(tree, tmp_path, cache_gigabytes=0.000001, num_workers=0)
    assert isinstance(data.splits.val, FileImages)
    packed = folder(tree, tmp_path)
    for split in ("train", "val", "test"):
        assert np.array_equal(data.samples(split)[0]["images"], packed.samples(split)[0]["images"])
    assert data.fingerprint == packed.fingerprint
    assert data.normalisation == packed.normalisation


def test_an_archive_of_a_tree(tree, tmp_path):
    archive = tmp_path / "pictures.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tree, arcname="top")
    packed, plain = folder(archive, tmp_path), folder(tree, tmp_path)
    assert packed.fingerprint == plain.fingerprint


def test_a_table_of_pictures(tree, tmp_path):
    table = tree / "labels.csv"
    rows = [f"{path.relative_to(tree)},{path.parent.name}" for path in sorted(tree.rglob("*.png"))]
    table.write_text("path,label\n" + "\n".join(rows))
    assert folder(table, tmp_path).fingerprint == folder(tree, tmp_path).fingerprint
    table.write_text("path,label\n" + "\n".join([*rows, "a/missing.png,a"]))
    with pytest.raises(ValueError, match="missing.png: no such file"):
        folder(table, tmp_path).setup()


def test_the_first_frame_of_an_animation_counts_and_is_said(tree, tmp_path):
    frames = [Image.new("RGB", (8, 8), (level, 0, 0)) for level in (0, 200)]
    frames[0].save(tree / "a" / "moving.gif", save_all=True, append_images=frames[1:])
    data = folder(tree, tmp_path)
    data.setup()
    assert "train: 1 animation, of which the first frame was taken" in texts(data.findings)


def test_pictures_of_one_colour(tmp_path):
    for name in ("a", "b"):
        for number in range(8):
            (tmp_path / "p" / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8)).save(tmp_path / "p" / name / f"{number}.png")
    data = folder(tmp_path / "p", tmp_path, val_fraction=0.3, keep_duplicates=True)
    data.setup()
    assert "train: 16 pictures of one colour" in texts(data.findings)
    with pytest.raises(ValueError, match="one and the same colour"):
        _ = data.normalisation


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"root": None}, ValueError, "image_folder needs --data.root"),
        ({"root": "/nowhere"}, FileNotFoundError, "nothing at --data.root /nowhere"),
        ({"val_fraction": 1.5}, ValueError, "must lie between 0 and 1, got 1.5"),
        ({"test_fraction": 0.0}, ValueError, "must lie between 0 and 1, got 0.0"),
        ({"image_size": 0}, ValueError, "--data.image_size must be 1 to 9459, got 0"),
        ({"image_size": 100_000}, ValueError, "--data.image_size must be 1 to 9459, got 100000"),
        ({"test_fraction": 0.99}, ValueError, "train: no images of a, b, c"),
        ({"mean": [0.5], "std": [0.5]}, ValueError, "need 3 values each"),
        ({"mean": [0.5]}, ValueError, "go together"),
        ({"weights": "ResNet50_Weights.V9"}, ValueError, "torchvision has no such weights"),
    ],
)
def test_bad_arguments(tree, tmp_path, arguments, error, match):
    with pytest.raises(error, match=match):
        _ = ImageFolder(
            **{"root": str(tree), "cache_dir": str(tmp_path / "cache")} | arguments
        ).normalisation


def test_a_class_with_one_picture_trains(tmp_path):
    root = save_tree(tmp_path / "p", {"a": 20, "b": 20, "rare": 1})
    data = folder(root, tmp_path)
    assert np.bincount(data.splits.train.targets)[2] == 1
    assert "val has no images of rare" in texts(data.findings)
    assert "test has no images of rare" in texts(data.findings)


def test_pretrained_weights_bring_their_preprocessing(tree, tmp_path):
    data = folder(tree, tmp_path, weights="ResNet50_Weights.IMAGENET1K_V2")
    assert data.preprocessing["height"] == 224
    assert data.preprocessing["resize_to"] == 232
    assert data.normalisation["mean"] == [0.485, 0.456, 0.406]
    said = "image size 224, mean [0.485, 0.456, 0.406], std [0.229, 0.224, 0.225], as the weights"
    assert f"{said} ResNet50_Weights.IMAGENET1K_V2 ask" in texts(data.findings)
    smaller = folder(tree, tmp_path, weights="ResNet50_Weights.IMAGENET1K_V2", image_size=32)
    assert smaller.image_shape == (3, 32, 32)


def test_a_huge_picture_is_refused_by_name(tree, tmp_path):
    Image.new("1", (10_000, 10_000)).save(tree / "a" / "huge.png")
    with pytest.raises(ValueError, match=r"huge.png: more than .* pixels, refused"):
        folder(tree, tmp_path).setup()


def test_random_crops_from_one_tree_leave_evaluation_packed(tmp_path):
    root = save_tree(tmp_path / "p", {"a": 20, "b": 20}, size=(30, 40))
    data = folder(root, tmp_path, image_size=8, random_resized_crop=0.3)
    assert isinstance(data.splits.train, FileImages)
    assert isinstance(data.splits.val, PackedImages)
    packed = folder(root, tmp_path, image_size=8)
    assert np.array_equal(data.samples("train")[0]["images"], packed.samples("train")[0]["images"])


def save_glyphs(root: Path, count: int) -> Path:
    """White shapes of two classes on a ground that is transparent."""
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            alpha = generator.integers(0, 2, (8, 8), dtype=np.uint8) * 255
            pixels = np.dstack([np.full((8, 8, 3), 255, np.uint8), alpha])
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


def test_white_glyphs_on_a_transparent_ground_are_named_as_the_cause(tmp_path):
    """Over white they are all the same, so that train loses them to val and test."""
    with pytest.raises(ValueError, match="train: no images of a, b") as caught:
        folder(save_glyphs(tmp_path / "p", 20), tmp_path).setup()
    for cause in (
        "train: 40 pictures with transparent parts, which became white",
        "train: 40 pictures of one colour",
        "30 images of train that val or test holds as well: dropped from train",
    ):
        assert f"found: {cause}" in str(caught.value)
    with pytest.raises(ValueError, match="(?s)one and the same colour.*with transparent parts"):
        _ = folder(tmp_path / "p", tmp_path, keep_duplicates=True).normalisation


@pytest.mark.parametrize("empty", ["val", "test"])
def test_unreadable_pictures_are_named_as_the_cause_of_an_empty_split(tmp_path, empty):
    counts = {f"{split}/{name}": 4 for split in ("train", "val", "test") for name in "ab"}
    root = save_tree(tmp_path / "p", counts)
    for path in (root / empty).rglob("*.png"):
        path.write_bytes(b"x")
    with pytest.raises(ValueError, match=f"{empty}: no images") as caught:
        folder(root, tmp_path, skip_unreadable=True).setup()
    assert f"found: {empty}: 8 pictures left out, as unreadable" in str(caught.value)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_pictures_for_a_test_split_stop_before_training(tmp_path, count):
    root = save_tree(tmp_path / "p", {"train/a": count, "train/b": count, "val/a": 1, "val/b": 1})
    with pytest.raises(ValueError, match="test: no images; add some, or raise --data.test_fract"):
        folder(root, tmp_path).setup()


def test_names_that_are_not_utf8_can_be_told(tmp_path, capsys):
    """In notes, findings, the report of the full check, and beside a loader."""
    odd = os.fsdecode(b"caf\xe9")
    counts = {"train/a": 20, "train/b": 20, f"train/a/{odd}": 3, f"{odd}": 2, f"train/b/.{odd}": 1}
    root = save_tree(tmp_path / "p", counts)
    (root / "train" / "b" / f"x.{odd}").write_bytes(b"")
    for name in ("a", "b"):
        (root / "train" / name / f"{odd}.png").write_bytes(b"no picture")
        copy = (root / "train" / "a" / "0.png").read_bytes()
        (root / "train" / name / f"{odd}{odd}.png").write_bytes(copy)
    data = folder(root, tmp_path, skip_unreadable=True)
    data.setup()
    check_data(data, "full", tmp_path)
    written = (tmp_path / "data_check.json").read_text(encoding="utf-8")
    said = "\n".join(notes_of(data, "off"))
    for text in (said, capsys.readouterr().out, json.loads(written)["warnings"]):
        assert "caf\\udce9" in str(text).replace("\\\\", "\\")
