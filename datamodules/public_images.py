"""MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100: their published files, found or downloaded.

Addresses and checksums are torchvision's. The file formats are read here: IDX, and the pickles of
the CIFAR archives by an unpickler that knows arrays and plain values only, so that a file from
elsewhere cannot run code.
"""

import gzip
import io
import pickle
import struct
import tarfile
import zlib
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from datamodules.cache_folder import build_once, cache_folder
from datamodules.downloads import DownloadError, fetch
from datamodules.image_datamodule import ImageDataModule
from datamodules.image_splits import ImageSplits, cut_off
from datamodules.packed_images import PackedImages, map_images, pixel_hash

Arrays = tuple[np.ndarray, np.ndarray]  # uint8 [M,C,H,W], int64 [M]


class PublicImages(ImageDataModule):
    """A published set with its own test split; val is a stratified share of train."""

    torchvision_class: str  # where addresses and checksums stand

    def load(self) -> ImageSplits:
        class_names, train, test = self.read()
        whole, test_images = (self._shared(arrays) for arrays in (train, test))
        rest, val = cut_off(whole, self.val_fraction, self.split_seed, self.fold)
        return ImageSplits(class_names, rest, val, test_images)

    @abstractmethod
    def read(self) -> tuple[list[str], Arrays, Arrays]:
        """Class names, train and test."""

    @property
    def folder(self) -> Path:
        """Where the published files lie or are put."""
        if self.root is None:
            return cache_folder(self.cache_dir) / "downloads" / self.torchvision_class.lower()
        if not Path(self.root).is_dir():
            raise FileNotFoundError(f"--data.root {self.root} is no folder")
        return Path(self.root)

    @abstractmethod
    def published(self, name: str) -> tuple[list[str], str]:
        """Addresses and MD5 of a published file."""

    def find(self, name: str) -> Path:
        """A published file at one of the usual places below the folder, else downloaded."""
        for place in (".", "raw", f"{self.torchvision_class}/raw"):
            for known in (name, name.removesuffix(".gz")):
                if (self.folder / place / known).is_file():
                    return self.folder / place / known
        try:
            return fetch(*self.published(name), self.folder / name)
        except (DownloadError, OSError) as error:
            raise ValueError(
                f"{name} is not in {self.folder} and cannot be downloaded; put the published file "
                f"there, or name its folder by --data.root. What was tried:\n  {error}"
            ) from error

    def _shared(self, arrays: Arrays) -> PackedImages:
        """Keeps pixels in memory, or, where loader workers need them, as a mapped file."""
        images = PackedImages(*arrays)
        if not self.sample_augmentation.is_active and not self.num_workers:
            return images
        name = f"{self.torchvision_class.lower()}-{pixel_hash(arrays[0]).hex()}"

        def write(folder: Path) -> None:
            np.save(folder / "images.npy", arrays[0])

        cache = cache_folder(self.cache_dir) / "pixels"
        folder = build_once(cache / name, write)
        return map_images(str(folder / "images.npy"), arrays[1])


class MNIST(PublicImages):
    """Handwritten digits, 28x28 grey (LeCun et al. 1998)."""

    torchvision_class = "MNIST"
    names: tuple[str, ...] = tuple(str(digit) for digit in range(10))

    def read(self) -> tuple[list[str], Arrays, Arrays]:
        return list(self.names), self._read_part("train"), self._read_part("t10k")

    def published(self, name: str) -> tuple[list[str], str]:
        from torchvision import datasets  # loads slowly; only a download needs it

        source = getattr(datasets, self.torchvision_class)
        return [f"{mirror}{name}" for mirror in source.mirrors], dict(source.resources)[name]

    def _read_part(self, part: str) -> Arrays:
        path = self.find(f"{part}-images-idx3-ubyte.gz")
        images = read_idx(path, num_axes=3)
        labels = read_idx(self.find(f"{part}-labels-idx1-ubyte.gz"), num_axes=1)
        if len(images) != len(labels):
            raise ValueError(f"{path}: {len(images)} images, but {len(labels)} labels")
        return images[:, None], labels.astype(np.int64)  # [M,1,H,W], [M]


class FashionMNIST(MNIST):
    """Articles of clothing, 28x28 grey (Xiao et al. 2017)."""

    torchvision_class = "FashionMNIST"
    names = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
        "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    )  # fmt: skip


class CIFAR10(PublicImages):
    """Ten kinds of things, 32x32 colour (Krizhevsky 2009)."""

    torchvision_class = "CIFAR10"
    archive = "cifar-10-python.tar.gz"
    unpacked_folder = "cifar-10-batches-py"
    train_parts = tuple(f"data_batch_{number}" for number in range(1, 6))
    test_part = "test_batch"
    meta = "batches.meta"
    labels_key = "labels"
    names_key = "label_names"

    def published(self, name: str) -> tuple[list[str], str]:
        from torchvision import datasets  # loads slowly; only a download needs it

        source = getattr(datasets, self.torchvision_class)
        return [source.url], source.tgz_md5

    def read(self) -> tuple[list[str], Arrays, Arrays]:
        parts = self._read_parts({*self.train_parts, self.test_part, self.meta})
        train = [self._arrays(parts[name]) for name in self.train_parts]
        images, targets = (np.concatenate(pieces) for pieces in zip(*train, strict=True))
        names = [str(name) for name in parts[self.meta][self.names_key]]
        return names, (images, targets), self._arrays(parts[self.test_part])

    def _read_parts(self, wanted: set[str]) -> dict[str, dict[str, Any]]:
        """The named pickles, from the unpacked folder or the archive."""
        for folder in (self.folder / self.unpacked_folder, self.folder):
            if all((folder / name).is_file() for name in wanted):
                return {name: read_pickle((folder / name).read_bytes(), name) for name in wanted}
        path = self.find(self.archive)
        try:
            with tarfile.open(path) as tar:
                found = {}
                for member in tar:
                    name, content = Path(member.name).name, tar.extractfile(member)
                    if name in wanted and content is not None:
                        found[name] = read_pickle(content.read(), f"{path}: {name}")
        except (tarfile.TarError, EOFError, OSError) as error:
            raise ValueError(f"{path} is damaged ({error}); delete it") from error
        if missing := wanted - found.keys():
            raise ValueError(f"{path} lacks {', '.join(sorted(missing))}")
        return found

    def _arrays(self, part: dict[str, Any]) -> Arrays:
        images = np.asarray(part["data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        return images, np.asarray(part[self.labels_key], dtype=np.int64)


class CIFAR100(CIFAR10):
    """A hundred kinds of things, 32x32 colour (Krizhevsky 2009)."""

    torchvision_class = "CIFAR100"
    archive = "cifar-100-python.tar.gz"
    unpacked_folder = "cifar-100-python"
    train_parts = ("train",)
    test_part = "test"
    meta = "meta"
    labels_key = "fine_labels"
    names_key = "fine_label_names"


def read_idx(path: Path, num_axes: int) -> np.ndarray:
    """Reads an IDX file of bytes, gzipped or not: uint8 with `num_axes` axes."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        magic, *shape = struct.unpack_from(f">{1 + num_axes}I", content)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it") from error
    values = np.frombuffer(content, dtype=np.uint8, offset=4 * (1 + num_axes))
    if magic != 0x800 + num_axes or values.size != np.prod(shape):
        raise ValueError(
            f"{path} is no whole IDX file of {num_axes} axes: its header names {shape}, "
            f"{values.size} bytes follow; delete it"
        )
    return values.reshape(shape)


class ArrayUnpickler(pickle.Unpickler):
    """Builds arrays and plain values; any other class or function is refused."""

    allowed = {
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in self.allowed:
            raise pickle.UnpicklingError(f"it wants {module_name}.{global_name}, which is refused")
        return self.allowed[module_name, global_name]


def read_pickle(content: bytes, name: str) -> dict[str, Any]:
    """A dictionary of arrays and plain values; ValueError for anything else."""
    try:
        value = ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{name} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{name} holds a {type(value).__name__} instead of a dictionary")
    return value
