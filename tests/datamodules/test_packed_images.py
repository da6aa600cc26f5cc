import gc
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from datamodules.image_datamodule import ImageDataModule
from datamodules.image_splits import ImageSplits
from datamodules.lazy_loader import keep_batch
from datamodules.order import EpochIndices, EvaluationBatchSampler
from datamodules.packed_images import (
    FileImages,
    ImageDataset,
    PackedImages,
    map_images,
    pixel_hash,
)


def packed(num: int = 20) -> PackedImages:
    images = np.random.default_rng(0).integers(0, 256, (num, 3, 8, 8), dtype=np.uint8)
    return PackedImages(images, np.arange(num) % 2)


def test_subsets_of_subsets_share_the_pixels():
    whole = packed()
    part = whole.subset(np.array([3, 5, 7])).subset(np.array([2, 0]))
    assert part.images is whole.images
    assert np.array_equal(part.read(np.arange(2)), whole.images[[7, 3]])
    assert part.targets.tolist() == [1, 1]
    assert part.hashes.tolist() == whole.hashes[[7, 3]].tolist()
    assert np.array_equal(part.read_original(1), whole.images[3])


def test_hashes_tell_shape_and_pixels_apart():
    zeros = np.zeros((1, 2, 8), np.uint8)
    assert pixel_hash(zeros) == pixel_hash(zeros.copy())
    assert pixel_hash(zeros) != pixel_hash(zeros.reshape(1, 8, 2))
    assert pixel_hash(zeros) != pixel_hash(zeros + 1)


def test_a_mapped_array_travels_as_its_path(tmp_path):
    np.save(tmp_path / "images.npy", packed(500).images)
    mapped = map_images(str(tmp_path / "images.npy"), np.zeros(500, np.int64))
    part = mapped.subset(np.array([4, 2]))
    sent = pickle.dumps(part)
    assert len(sent) < 2000
    again = pickle.loads(sent)
    assert isinstance(again.images, np.memmap)
    assert np.array_equal(again.read(np.arange(2)), part.read(np.arange(2)))


def test_draws_belong_to_samples():
    dataset = ImageDataset(packed(), seed=1, num_draws=4)
    first = dataset.__getitems__(EpochIndices(0, np.array([3, 9])))[2]
    second = dataset.__getitems__(EpochIndices(0, np.array([9])))[2]
    assert torch.equal(first[1], second[0])
    assert not torch.equal(first[1], dataset.__getitems__(EpochIndices(1, np.array([9])))[2][0])


class CountedPaths(FileImages):
    """Reads paths, but no files."""

    def read(self, indices: np.ndarray) -> np.ndarray:
        lengths = [len(self.paths[index]) for index in indices]
        return np.full((len(indices), 1, 1, 1), sum(lengths) % 256, dtype=np.uint8)


def proportional_memory() -> int:
    """Bytes of this process and its children, shared pages counted once (PSS)."""
    gc.collect()
    pids = [os.getpid()]
    for task in Path("/proc/self/task").iterdir():
        pids += [int(pid) for pid in (task / "children").read_text().split()]
    total = 0
    for pid in pids:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total * 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_memory_does_not_climb_with_workers():
    """500,000 paths read by two forked workers: no page is copied by reference counts."""
    paths = np.array([b"/data/train/class%d/image_%d.jpg" % (n % 1000, n) for n in range(500_000)])
    targets = np.zeros(len(paths), dtype=np.int64)
    split = CountedPaths(paths, targets, {}, np.zeros(len(paths), "S16"))
    loader = DataLoader(
        ImageDataset(split),
        batch_sampler=EvaluationBatchSampler(len(split), 5000),
        num_workers=2,
        multiprocessing_context="fork",
        collate_fn=keep_batch,
    )
    batches = iter(loader)
    for _ in range(4):  # both workers are up and have read
        next(batches)
    before = proportional_memory()
    assert sum(len(targets) for _, targets in batches if len(targets)) == 480_000
    batches = iter(loader)
    for _ in range(96):
        next(batches)
    grown = proportional_memory() - before
    assert grown < 0.1 * before
    assert grown < 15e6  # a list of these paths grows by more, as each object's page is copied


def test_the_pictures_are_never_copied_into_a_checkpoint():
    class Few(ImageDataModule):
        def load(self) -> ImageSplits:
            return ImageSplits(["a", "b"], packed(8), packed(2), packed(2))

    assert Few(keep_duplicates=True).state_dict() == {}
