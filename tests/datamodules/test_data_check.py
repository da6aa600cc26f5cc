"""What is found before the first step, in which form it is told, and what stops a run."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules import data_check, image_check, text_check
from datamodules.bbc_news import BBCNews
from datamodules.data_check import check_data, notes_of
from datamodules.digits import Digits
from datamodules.findings import Finding
from datamodules.image_datamodule import ImageDataModule
from datamodules.image_folder import ImageFolder
from datamodules.image_splits import ImageSplits
from datamodules.packed_images import PackedImages
from datamodules.text_files import TextFiles
from tests.datamodules.pictures import save_tree
from tests.tiny import tiny_split
from tests.tiny_sources import write_texts
from train import main


class Given(ImageDataModule):
    """Three classes with the pixels and labels that a test puts there."""

    def __init__(self, train: PackedImages, **common: Any) -> None:
        super().__init__(**common)
        self.given = train

    def load(self) -> ImageSplits:
        return ImageSplits(["a", "b", "c"], self.given, tiny_split(15, 2), tiny_split(15, 3))


@dataclass
class Report:
    """The content of data_check.json."""

    summary: str
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def found_in(data: Any, folder: Path, level: str = "fast") -> Report:
    """What was written."""
    data.setup()
    check_data(data, level, folder)
    report = json.loads((folder / "data_check.json").read_text())
    assert report.pop("level") == level
    return Report(**report)


def image_folder(root: Path, cache: Path, **arguments: Any) -> ImageFolder:
    common = {"cache_dir": str(cache), "val_fraction": 0.25, "test_fraction": 0.25}
    return ImageFolder(str(root), **common | arguments)


def text_files(root: Path, cache: Path, **arguments: Any) -> TextFiles:
    return TextFiles(str(root), cache_dir=str(cache), **arguments)


# ---- the form ------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["fast", "full"])
def test_good_data_is_one_line(tmp_path, capsys, level):
    found = found_in(Digits(), tmp_path, level)
    assert capsys.readouterr().out == "data check: 5,000 images, 10 classes, nothing found\n"
    assert found == Report("5,000 images, 10 classes")


def test_findings_leave_the_notes_and_stand_in_one_table(tmp_path, capsys):
    data = BBCNews(cache_dir=str(tmp_path))
    data.setup()
    capsys.readouterr()
    found = found_in(data, tmp_path)
    repeats = "100 texts of train repeat another one (kept; --data.drop_repeats removes them)"
    assert repeats in found.warnings
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "data check: 2,225 texts, 5 classes, 0 errors, 4 warnings"
    assert lines[1:] == [f"  warning  {text}" for text in found.warnings]
    (note,) = notes_of(data, "fast")
    assert "padding" in note


def test_off_looks_at_nothing_and_leaves_the_notes(tmp_path, capsys):
    data = BBCNews(cache_dir=str(tmp_path))
    data.setup()
    capsys.readouterr()
    for off in ("off", False):
        check_data(data, off, tmp_path)
    assert not (tmp_path / "data_check.json").exists()
    assert capsys.readouterr().out == ""
    assert len(notes_of(data, "off")) == len(notes_of(data, False)) == 5


def test_errors_stand_apart_and_stop_the_run(tmp_path, capsys):
    train = tiny_split(33, 1)
    images = np.broadcast_to(train.images[:1], train.images.shape)
    with pytest.raises(ValueError, match="all 33 training images are the same picture") as stopped:
        found_in(Given(PackedImages(images, train.targets)), tmp_path)
    assert "--check_data off" in str(stopped.value)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["error", "warning"]
    assert json.loads((tmp_path / "data_check.json").read_text())["errors"]


def test_a_terminal_gets_a_table(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    found = [Finding("warning", "few samples"), Finding("error", "broken.png cannot be read")]
    data_check.show("3 images", found)
    output = capsys.readouterr().out
    assert output.index("broken.png") < output.index("few samples")
    assert "\x1b[31m" in output  # errors are red


def test_a_run_stops_before_its_first_step(tmp_path, capsys):
    root = write_texts(tmp_path / "given", "{label}/{number}.txt")
    (tmp_path / "vocab.txt").write_text("<unk>\n<pad>\nnichts\n")
    arguments = ["--data", "text_files", "--data.root", str(root), "--model", "bag_of_embeddings"]
    arguments += ["--data.vocab", str(tmp_path / "vocab.txt"), "--runs_dir", str(tmp_path / "runs")]
    arguments += ["--data.cache_dir", str(tmp_path / "cache")]
    assert main(arguments) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: the data cannot be trained on")
    assert second == "  no word of train is in the vocabulary: all are read as <unk>"
    (report,) = (tmp_path / "runs").glob("*/*/data_check.json")
    assert len(json.loads(report.read_text())["errors"]) == 1
    assert not list(report.parent.glob("checkpoints/*.ckpt"))
    assert main([*arguments, "--check_data", "off", "--fast_dev_run"]) == 0


# ---- any data ------------------------------------------------------------------------------


def test_unequal_and_rare_classes(tmp_path):
    rows = np.flatnonzero(tiny_split(90, 1).targets == 0)
    rows = np.concatenate([rows, np.flatnonzero(tiny_split(90, 1).targets == 1)[:2], [2, 5]])
    found = found_in(Given(tiny_split(90, 1).subset(rows)), tmp_path)
    assert found.warnings == [
        "train: fewer than 10 samples of 2 classes (b 2, c 2)",
        "train: 30 samples of a, but 2 of b; --loss.class_weights balanced weighs all classes "
        "alike",
    ]


def test_values_that_are_not_finite(tmp_path):
    train = tiny_split(33, 1)
    pixels = train.images.astype(np.float32)
    pixels[:, 0, 0, 0] = np.nan
    data = Given(PackedImages(pixels, train.targets), mean=[float("nan")], std=[1.0])
    with pytest.raises(ValueError, match="8 of 512 values of a batch are not finite") as stopped:
        found_in(data, tmp_path)
    assert r"the mean that images are normalised with is [nan]" in str(stopped.value)


def test_classes_that_may_be_one_or_several_are_found_in_texts_and_pictures(tmp_path):
    names = ["Cat", "cat", "dog", "cat|dog"]
    tree = save_tree(tmp_path / "p", dict.fromkeys(names, 20))
    rows = "".join(f"text {i},{names[i % 4]}\n" for i in range(80))
    (tmp_path / "t.csv").write_text("text,label\n" + rows)
    for data in (image_folder(tree, tmp_path), text_files(tmp_path / "t.csv", tmp_path)):
        case, joint = found_in(data, tmp_path).warnings[-2:]
        assert case.startswith("classes differ only in case: 'Cat' (")
        assert ("--data.join_labels case joins them" in case) == isinstance(data, TextFiles)
        assert joint.startswith("1 class names look like several labels in one")


TEXT_SPEC = {
    "inputs": [
        {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]},
        {"name": "lengths", "dtype": "int64", "shape": ["batch"]},
    ],
    "dynamic": {"batch": [1, 64], "length": [1, 40]},
}


class Foreign:
    """A datamodule of somebody's own that keeps the contract."""

    class_names = ("a", "b")
    input_spec = TEXT_SPEC
    train_targets = np.array([0] * 20 + [1])

    def setup(self) -> None: ...

    def example_batch(self) -> Any:
        tokens = torch.ones(2, 3, dtype=torch.int64)
        inputs = {"tokens": tokens, "lengths": torch.full((2,), 3)}
        return inputs, torch.zeros(2, dtype=torch.int64)


def test_a_foreign_datamodule_is_checked_by_its_contract(tmp_path):
    found = found_in(Foreign(), tmp_path)
    assert found.summary == "21 training samples, 2 classes"
    assert len(found.warnings) == 2


# ---- images --------------------------------------------------------------------------------


def test_images_of_one_colour_are_counted(tmp_path):
    train = tiny_split(33, 1)
    train.images[:4] = np.arange(4).reshape(4, 1, 1, 1)
    found = found_in(Given(train), tmp_path)
    assert found.warnings == ["train: 4 of 33 images are of one colour"]


def test_equal_images_of_different_classes_are_found_across_splits(tmp_path):
    train, val = tiny_split(33, 1), tiny_split(15, 2)
    train.images[0] = val.images[1]  # class 0 here, class 1 there
    train.images[5] = train.images[7]
    found = found_in(Given(train), tmp_path)
    dropped, pairs = sorted(found.warnings)
    assert dropped == "1 image of train that val or test holds as well: dropped from train"
    assert pairs.startswith("2 pairs of equal images with different labels: ")
    assert set(pairs.partition(": ")[2].split(", ")) == {"train a / val b", "train b / train c"}


def test_every_picture_file_is_looked_at(tmp_path):
    tree = save_tree(tmp_path / "p", {"a": 20, "b": 20}, size=(16, 16))
    Image.new("CMYK", (16, 16), (9, 8, 7, 0)).save(tree / "a" / "printed.jpg")
    (tree / "b" / "renamed.png").write_bytes((tree / "a" / "printed.jpg").read_bytes())
    Image.new("RGB", (2, 90)).save(tree / "b" / "thin.png")
    found = found_in(image_folder(tree, tmp_path, image_size=16), tmp_path, "full")
    place = f"{tree}/"
    listed = "\n".join(found.warnings).replace(place, "")
    for line in (
        "1 pictures hold JPEG in spite of their suffix: b/renamed.png",
        "2 pictures are of mode CMYK: a/printed.jpg, b/renamed.png",
        "1 pictures have a side below 8 pixels: b/thin.png",
        "1 pictures are over 4 times as long as wide: b/thin.png",
        "1 equal pictures lie in different classes: a/printed.jpg = b/renamed.png",
    ):
        assert line in listed.splitlines(), listed


def test_a_file_that_broke_after_it_was_cached_is_an_error_of_the_full_check(tmp_path):
    tree = save_tree(tmp_path / "p", {"a": 20, "b": 20})
    data = image_folder(tree, tmp_path)
    data.setup()
    (tree / "a" / "3.png").write_bytes(b"bits that fell over")
    check_data(data, "fast", None)
    with pytest.raises(ValueError, match=r"a/3\.png: not a picture"):
        check_data(data, "full", None)
    data.skip_unreadable = True
    check_data(data, "full", None)


def test_the_full_check_is_remembered_until_a_file_changes(tmp_path, monkeypatch):
    tree = save_tree(tmp_path / "p", {"a": 20, "b": 20})
    looked_at = []
    look = image_check.look_at
    monkeypatch.setattr(
        image_check, "look_at", lambda name, plan: looked_at.append(name) or look(name, plan)
    )
    for expected in (40, 40):
        found_in(image_folder(tree, tmp_path), tmp_path, "full")
        assert len(looked_at) == expected
    save_tree(tree, {"a": 21})
    found_in(image_folder(tree, tmp_path), tmp_path, "full")
    assert len(looked_at) == 81


# ---- texts ---------------------------------------------------------------------------------


def test_unknown_words_are_an_error_only_where_there_is_nothing_else(tmp_path):
    root = write_texts(tmp_path / "given", "{label}/{number}.txt")
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("<unk>\n<pad>\nnumber\nsays\n")
    found = found_in(text_files(root, tmp_path, vocab=str(vocabulary)), tmp_path)
    assert any(text.startswith("train: ") and "<unk>" in text for text in found.warnings)
    vocabulary.write_text("<unk>\n<pad>\nnichts\n")
    with pytest.raises(ValueError, match="no word of train is in the vocabulary"):
        found_in(text_files(root, tmp_path, vocab=str(vocabulary)), tmp_path)


def test_shares_of_tokens_are_exact_where_all_are_counted():
    ids = np.zeros(40 * text_check.BLOCK, np.uint16)
    ids[: 4 * text_check.BLOCK] = 1
    assert text_check.share_of(1, ids, full=True) == 0.1
    assert text_check.share_of(1, ids, full=False) == pytest.approx(0.1, abs=0.03)


def test_a_class_that_val_lacks_is_named(tmp_path):
    rows = "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "train.csv").write_text("text,label\n" + rows)
    (tmp_path / "val.csv").write_text("text,label\n" + "other,a\nthing,a\n" * 5)
    found = found_in(text_files(tmp_path, tmp_path / "cache"), tmp_path)
    assert "val has no texts of b" in found.warnings


def test_traces_of_a_wrong_encoding(tmp_path):
    root = write_texts(tmp_path / "given", "{label}/{number}.txt")
    (root / "a" / "0.txt").write_bytes("caf\x82 in cp850".encode())
    (root / "a" / "1.txt").write_text("caf\ufffd", encoding="utf-8")
    found = found_in(text_files(root, tmp_path), tmp_path, "full")
    assert "1 texts hold control characters: look at the encoding" in found.warnings
    assert "1 texts hold replacement characters (U+FFFD): look at the encoding" in found.warnings


def test_texts_are_read_with_a_progress_bar_and_once_until_a_file_changes(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    root = write_texts(tmp_path / "given", "{label}/{number}.txt")
    for expected in ("data check", ""):
        data = text_files(root, tmp_path)
        data.setup()
        capsys.readouterr()
        check_data(data, "full", None)
        assert (expected in capsys.readouterr().err) if expected else not capsys.readouterr().err
    (root / "a" / "1.txt").write_text("caf\ufffd", encoding="utf-8")
    found = found_in(text_files(root, tmp_path), tmp_path, "full")
    assert "1 texts hold replacement characters (U+FFFD): look at the encoding" in found.warnings
