"""A few real files for each data source, so that the contract can be tried on all of them.

A source that is not listed is made without arguments and skipped where it finds no data.
"""

from pathlib import Path
from typing import Any

from tests.datamodules.pictures import cifar_parts, save_tree, write_archive, write_mnist

CIFAR10_FILES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def tiny_arguments(name: str, folder: Path) -> dict[str, Any]:
    """Constructor arguments for a source, after writing what it reads."""
    if name in ("mnist", "fashion_mnist"):
        return {"root": str(write_mnist(folder))}
    if name in ("cifar10", "cifar100"):
        fine = "fine_" if name == "cifar100" else ""
        files, meta = (["train", "test"], "meta") if fine else (CIFAR10_FILES, "batches.meta")
        parts = cifar_parts(f"{fine}labels", f"{fine}label_names", files, meta)
        inside = "cifar-100-python" if fine else "cifar-10-batches-py"
        write_archive(folder / f"{name.replace('cifar', 'cifar-')}-python.tar.gz", inside, parts)
        return {"root": str(folder), "val_fraction": 0.5}
    if name == "image_folder":
        return {"root": str(save_tree(folder / "pictures", {"a": 20, "b": 20, "c": 20}))}
    if name == "text_files":
        return {"root": str(write_texts(folder / "texts", "{label}/{number}.txt"))}
    if name == "imdb":
        for split in ("train", "test"):
            write_texts(folder / "aclImdb" / split, "{label}/{number}_1.txt", ("neg", "pos"), split)
        return {"root": str(folder / "aclImdb")}
    if name == "ag_news":
        for split in ("train", "test"):
            rows = [f'"{i % 4 + 1}","Title {split} {i}","Text {i}"' for i in range(80)]
            (folder / f"{split}.csv").write_text("\n".join(rows))
        return {"root": str(folder)}
    return {}


def write_texts(
    root: Path, pattern: str, labels: tuple[str, ...] = ("a", "b", "c"), word: str = ""
) -> Path:
    """20 short texts a label; each holds its label as a word."""
    for label in labels:
        for number in range(20):
            path = root / pattern.format(label=label, number=number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"number {number} {word} says {label} " + "more words " * (number % 4))
    return root
