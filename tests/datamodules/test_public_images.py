import gzip
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from datamodules import DATAMODULES
from datamodules.downloads import DownloadError
from datamodules.public_images import CIFAR10, CIFAR100, MNIST, FashionMNIST, read_idx, read_pickle
from tests.datamodules.pictures import cifar_parts, idx, write_archive, write_mnist

CIFAR10_PARTS = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def test_files_that_lie_there_are_read(tmp_path):
    data = FashionMNIST(str(write_mnist(tmp_path)), val_fraction=0.2)
    assert [len(data.splits[name]) for name in ("train", "val", "test")] == [48, 12, 20]
    assert data.image_shape == (1, 28, 28)
    assert data.class_names[9] == "Ankle boot"
    assert sorted(np.bincount(data.splits.val.targets)) == [1] * 8 + [2] * 2  # 1.2 each


def test_the_folder_layout_of_torchvision_is_found(tmp_path):
    write_mnist(tmp_path / "MNIST" / "raw")
    assert len(MNIST(str(tmp_path), val_fraction=0.2).splits.test) == 20


def test_cifar_archive_and_unpacked_folder_agree(tmp_path):
    parts = cifar_parts("labels", "label_names", CIFAR10_PARTS, "batches.meta")
    write_archive(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py", parts)
    packed = CIFAR10(str(tmp_path))
    assert packed.image_shape == (3, 32, 32)
    assert [len(packed.splits[name]) for name in ("train", "val", "test")] == [90, 10, 20]
    assert packed.class_names[3] == "thing 3"
    folder = tmp_path / "other" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name, content in parts.items():
        (folder / name).write_bytes(content)
    assert CIFAR10(str(tmp_path / "other")).fingerprint == packed.fingerprint


def test_cifar100_reads_its_fine_labels(tmp_path):
    parts = cifar_parts("fine_labels", "fine_label_names", ["train", "test"], "meta")
    write_archive(tmp_path / "cifar-100-python.tar.gz", "cifar-100-python", parts)
    assert len(CIFAR100(str(tmp_path), val_fraction=0.5).splits.train) == 10


class Attack:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/attacked",)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (pickle.dumps({"data": Attack()}), "posix.system, which is refused"),
        (pickle.dumps({"data": Path("x")}), "which is refused"),
        (pickle.dumps([1, 2]), "a list instead of a dictionary"),
        (pickle.dumps({"data": np.zeros(4)})[:-20], "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_a_pickle_cannot_run_code(content, match):
    with pytest.raises(ValueError, match=match):
        read_pickle(content, "data_batch_1")


def test_arrays_of_both_numpy_generations_are_read():
    written = pickle.dumps({"data": np.arange(6, dtype=np.uint8)}, protocol=4)
    old = written.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    # the name's length stands before it
    old = old.replace(b"\x8c\x16numpy.core.multiarray", b"\x8c\x15numpy.core.multiarray")
    start = old.index(b"\x95") + 1  # the frame is one byte shorter
    (length,) = struct.unpack("<Q", old[start : start + 8])
    old = old[:start] + struct.pack("<Q", length - 1) + old[start + 8 :]
    for content in (written, old):
        assert read_pickle(content, "x")["data"].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"no gzip", "is damaged"),
        (idx(np.zeros((4, 2, 2), np.uint8))[:-9], "is damaged"),
        (idx(np.zeros((4, 2), np.uint8)), "no whole IDX file of 3 axes"),
        (gzip.compress(struct.pack(">4I", 0x803, 5, 2, 2) + bytes(7)), "names .5, 2, 2., 7 bytes"),
        (gzip.compress(b"ab"), "is damaged"),
    ],
    ids=["no gzip", "cut off", "two axes", "too short", "no header"],  # gzip holds the time
)
def test_damaged_files_are_named(tmp_path, content, match):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=match) as caught:
        read_idx(path, 3)
    assert str(path) in str(caught.value)


def test_without_a_network_one_message_says_where_to_put_the_files(tmp_path, monkeypatch):
    def unreachable(addresses, md5, target):
        raise DownloadError(f"{addresses[0]}: no network")

    monkeypatch.setattr("datamodules.public_images.fetch", unreachable)
    with pytest.raises(ValueError, match="is not in .*; put the published file there") as caught:
        MNIST(str(tmp_path)).setup()
    assert "train-images-idx3-ubyte.gz" in str(caught.value)
    assert "no network" in str(caught.value)
    with pytest.raises(ValueError, match="cifar-10-python.tar.gz is not in .*downloads/cifar10"):
        CIFAR10(cache_dir=str(tmp_path)).setup()


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_addresses_and_checksums_come_from_torchvision(name):
    module, _, class_name = DATAMODULES[name].rpartition(".")
    data = {"MNIST": MNIST, "FashionMNIST": FashionMNIST, "CIFAR10": CIFAR10, "CIFAR100": CIFAR100}
    file_name = "t10k-labels-idx1-ubyte.gz" if "mnist" in name else f"{name}-python.tar.gz"
    addresses, md5 = data[class_name]().published(file_name)
    assert len(md5) == 32
    assert all(address.startswith("http") for address in addresses)


def test_a_root_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="--data.root .*nowhere is no folder"):
        MNIST(str(tmp_path / "nowhere")).setup()


def test_labels_beyond_the_classes_are_found_before_training(tmp_path):
    write_mnist(tmp_path)
    labels = np.full(60, 3, dtype=np.uint8)
    labels[7] = 10
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(labels))
    with pytest.raises(ValueError, match=r"label 10 in row \d+ lies outside 0..9"):
        MNIST(str(tmp_path)).setup()


def test_pixels_for_workers_are_shared_as_a_file(tmp_path):
    write_mnist(tmp_path / "data")
    plain = MNIST(str(tmp_path / "data"), val_fraction=0.2)
    shared = MNIST(
        str(tmp_path / "data"), val_fraction=0.2, rand_augment=9, cache_dir=str(tmp_path / "c")
    )
    assert isinstance(shared.splits.train.images, np.memmap)
    assert shared.fingerprint == plain.fingerprint
