"""Small picture files and public sets for tests."""

import gzip
import io
import pickle
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image


def save_picture(
    path: Path, colour: int = 0, size: tuple[int, int] = (8, 8), mode: str = "RGB"
) -> Path:
    """A picture of noise around a grey level; `size` is (H, W)."""
    seed = zlib.crc32(f"{path}{colour}".encode(errors="surrogateescape"))
    noise = np.random.default_rng(seed).integers(0, 20, (*size, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise + np.uint8(colour)).convert(mode).save(path)
    return path


def save_tree(root: Path, counts: dict[str, int], size: tuple[int, int] = (8, 8)) -> Path:
    """`root/<name>/<number>.png`, as many of each name as asked; names may hold slashes."""
    for place, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            save_picture(root / name / f"{number}.png", 30 * place, size)
    return root


def idx(array: np.ndarray) -> bytes:
    """uint8 array -> gzipped IDX."""
    header = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
    return gzip.compress(header + array.tobytes())


def write_mnist(root: Path, num_train: int = 60, num_test: int = 20) -> Path:
    generator = np.random.default_rng(0)
    root.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", num_train), ("t10k", num_test)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        (root / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (root / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(labels))
    return root


def cifar_parts(labels_key: str, names_key: str, parts: list[str], meta: str) -> dict[str, bytes]:
    generator = np.random.default_rng(0)
    content: dict[str, object] = {
        part: {
            "data": generator.integers(0, 256, (20, 3072), dtype=np.uint8),
            labels_key: [label % 10 for label in range(20)],
        }
        for part in parts
    }
    content[meta] = {names_key: [f"thing {number}" for number in range(10)]}
    return {name: pickle.dumps(value) for name, value in content.items()}


def write_archive(path: Path, folder: str, parts: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in parts.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
