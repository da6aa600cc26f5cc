"""Refuses loaders that would give every device all samples, where devices should share them.

The project's own loaders share, and never drop or repeat a sample of an evaluation; Lightning's
replacement for others would. So a data source from elsewhere has to share by itself.
"""

from typing import Any

import pytorch_lightning as pl
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

SAME_ON_ALL = (SequentialSampler, RandomSampler, WeightedRandomSampler)


class SharedSamples(pl.Callback):
    """Looks at the loaders when training and when a test starts."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loaders = {"train": trainer.train_dataloader, "val": trainer.val_dataloaders}
        check_shares(loaders, trainer.world_size)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        check_shares({"test": trainer.test_dataloaders}, trainer.world_size)


def check_shares(loaders: dict[str, Any], num_ranks: int) -> None:
    """Raises where torch's own samplers are to serve several ranks.

    Args:
        loaders: Those of a split, by its name; None where there are none.

    Raises:
        ValueError: The splits whose samples all ranks would see.
    """
    whole = [f"{split}_dataloader" for split, found in loaders.items() if is_whole(found)]
    if whole and num_ranks > 1:
        raise ValueError(
            f"{' and '.join(whole)} would give all samples to each of {num_ranks} devices, so that "
            f"they count {num_ranks} times; give the loader a sampler that shares them, such as "
            "DistributedSampler(dataset), or use --devices 1"
        )


def is_whole(loader: Any) -> bool:
    """Whether a loader is known to give the same samples wherever it runs."""
    if isinstance(loader, (list, tuple)):
        return any(map(is_whole, loader))
    if not isinstance(loader, DataLoader) or type(loader.batch_sampler) is not BatchSampler:
        return False
    return type(loader.sampler) in SAME_ON_ALL
