"""What the loaders of images and of texts share."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from datamodules.text_files import TextFiles
from tests.tiny import TinyImages
from tests.tiny_sources import write_texts

TWO_RANKS: Any = SimpleNamespace(
    world_size=2,
    global_rank=0,
    num_devices=2,
    strategy=SimpleNamespace(root_device=torch.device("cpu")),
)


def test_a_split_that_leaves_a_rank_without_a_sample_is_refused(tmp_path: Path) -> None:
    """Lightning would skip the evaluation on that rank, and the others wait for it for ever."""
    write_texts(tmp_path / "train", "{label}/{number}.txt")
    for split in ("val", "test"):
        (tmp_path / split / "a").mkdir(parents=True)
        (tmp_path / split / "a" / "1.txt").write_text(split)
    for data in (TinyImages(num_val=1), TextFiles(str(tmp_path), cache_dir=str(tmp_path / "c"))):
        data.trainer = TWO_RANKS
        for loader in (data.val_dataloader, data.test_dataloader):
            with pytest.raises(ValueError, match=rf"has 1 {data.kind}, but 2 processes need"):
                loader()


def test_such_a_split_is_named_before_training(tmp_path: Path) -> None:
    write_texts(tmp_path / "train", "{label}/{number}.txt")
    (tmp_path / "val" / "a").mkdir(parents=True)
    (tmp_path / "val" / "a" / "1.txt").write_text("val")
    for data in (TinyImages(num_val=1), TextFiles(str(tmp_path), cache_dir=str(tmp_path / "c"))):
        data.setup()
        data.trainer = TWO_RANKS
        with pytest.raises(ValueError, match=f"val has 1 {data.kind}, but 2 processes need at le"):
            data.setup("fit")


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 training image is"), (3, "3 training images are")]
)
def test_what_is_left_out_is_counted_in_good_english(
    count: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = TinyImages()
    data.trainer = SimpleNamespace(**vars(TWO_RANKS), print=print)
    loader: Any = SimpleNamespace(batch_sampler=SimpleNamespace(num_dropped=count))
    data._told(loader)
    assert f"{said} left out of each epoch: too few for a batch" in capsys.readouterr().out


def test_texts_that_two_ranks_leave_out_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_texts(tmp_path / "texts", "{label}/{number}.txt")
    data = TextFiles(
        str(tmp_path / "texts"), cache_dir=str(tmp_path), batch_size=2, val_fraction=0.15
    )
    data.trainer = SimpleNamespace(**vars(TWO_RANKS), print=print)
    data.setup()
    assert len(data.corpus.splits["train"]) % 2 == 1
    capsys.readouterr()
    data.train_dataloader()
    told = capsys.readouterr().out
    assert "1 training text is left out of each epoch: too few for a batch\nloading: 0 w" in told
    data.train_dataloader()
    assert capsys.readouterr().out == ""
