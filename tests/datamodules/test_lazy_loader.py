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
            with pytest.raises(ValueError, match=rf"has 1 {data.noun}, but 2 processes need"):
                loader()


def test_such_a_split_is_named_before_training(tmp_path: Path) -> None:
    write_texts(tmp_path / "train", "{label}/{number}.txt")
    (tmp_path / "val" / "a").mkdir(parents=True)
    (tmp_path / "val" / "a" / "1.txt").write_text("val")
    for data in (TinyImages(num_val=1), TextFiles(str(tmp_path), cache_dir=str(tmp_path / "c"))):
        data.setup()
        data.trainer = TWO_RANKS
        with pytest.raises(ValueError, match=f"val has 1 {data.noun}, but 2 processes need at le"):
            data.setup("fit")


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 training image is"), (3, "3 training images are")]
)
def test_what_is_left_out_is_counted_in_good_english(count: int, said: str) -> None:
    data = TinyImages(num_train=45 + count, batch_size=15 if count == 1 else 9)
    data.trainer = None if count == 1 else SimpleNamespace(**vars(TWO_RANKS) | {"world_size": 3})
    data.train_dataloader()
    assert data.loading[0] == f"{said} left out of each epoch: too few for a batch"


def test_texts_that_two_ranks_leave_out_are_counted(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", "{label}/{number}.txt")
    data = TextFiles(
        str(tmp_path / "texts"), cache_dir=str(tmp_path), batch_size=2, val_fraction=0.15
    )
    data.trainer = TWO_RANKS
    data.setup()
    assert len(data.corpus.splits["train"]) % 2 == 1
    assert not data.loading
    data.train_dataloader()
    left_out, policy = data.loading
    assert left_out == "1 training text is left out of each epoch: too few for a batch"
    assert policy.startswith("loading: 0 w")
