"""`--overfit_batches`: the same samples in every epoch, and validated on too."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from datamodules.samplers import EpochBatchSampler, SameBatches
from tests.callbacks.test_exact_resume import tiny_texts
from tests.tiny import TinyImages, tiny_classifier, tiny_trainer


class Seen(pl.Callback):
    """Notes the samples of each epoch of training and of validation."""

    def __init__(self) -> None:
        self.train: list[set[bytes]] = []
        self.val: list[set[bytes]] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.train.append(set())

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.val.append(set())

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self.train[-1] |= samples_of(batch)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int, loader: int = 0
    ) -> None:
        self.val[-1] |= samples_of(batch)


def samples_of(batch: Any) -> set[bytes]:
    return {row.numpy().tobytes() for row in next(iter(batch[0].values()))}


@pytest.mark.parametrize("num_batches", [1, 2, 0.5])
@pytest.mark.parametrize("kind", ["images", "texts"])
def test_the_same_samples_each_epoch_and_in_validation(
    tmp_path: Path, kind: str, num_batches: int | float
) -> None:
    data: Any = TinyImages(batch_size=8, num_workers=0) if kind == "images" else tiny_texts()
    data.setup()
    seen = Seen()
    trainer = tiny_trainer(tmp_path, callbacks=[seen], max_epochs=3, overfit_batches=num_batches)
    network = "small_cnn" if kind == "images" else "text_cnn"
    trainer.fit(tiny_classifier(data, network), datamodule=data)
    assert len(seen.train) == len(seen.val) == 3
    assert all(found == seen.train[0] for found in seen.train + seen.val)
    batches = num_batches if num_batches >= 1 else len(trainer.train_dataloader) // 2
    assert trainer.global_step == 3 * batches


@pytest.mark.parametrize("num_batches", [2])
def test_augmentation_is_the_same_too_and_none_in_validation(
    tmp_path: Path, num_batches: int
) -> None:
    data, seen = TinyImages(batch_size=8, crop_padding=2), Seen()
    data.setup()
    trainer = tiny_trainer(tmp_path, callbacks=[seen], max_epochs=2, overfit_batches=num_batches)
    trainer.fit(tiny_classifier(data), datamodule=data)
    assert seen.train[0] == seen.train[1]
    assert seen.val[0] != seen.train[0]
    train = data.splits.train.read(torch.arange(48).numpy())
    assert seen.val[0] <= {image.tobytes() for image in train}


def test_each_rank_has_its_own_part() -> None:
    parts = []
    for rank in range(2):
        batches = SameBatches(EpochBatchSampler(48, 8, 0, 2, rank))
        first = [batch.indices.tolist() for batch in batches]
        batches.set_epoch(5)
        assert [batch.indices.tolist() for batch in batches] == first
        parts.append({index for batch in first for index in batch})
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 48
