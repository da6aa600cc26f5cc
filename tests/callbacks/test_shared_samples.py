"""Devices that would each see all samples are refused."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
)

from callbacks.shared_samples import check_shares
from datamodules.order import EvaluationBatchSampler

ROWS = TensorDataset(torch.arange(8))


class Stream(IterableDataset):
    """Shares for itself, or not: nobody can tell."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


@pytest.mark.parametrize(
    "arguments",
    [{"shuffle": True}, {}, {"batch_size": 3}, {"sampler": WeightedRandomSampler([1.0] * 8, 8)}],
)
def test_torchs_own_samplers_do_not_share(arguments: dict[str, Any]) -> None:
    loaders = {"train": DataLoader(ROWS, **arguments), "val": None, "test": [DataLoader(ROWS)]}
    check_shares(loaders, 1)
    text = "train_dataloader and test_dataloader would give all samples to each of 2 devices"
    with pytest.raises(ValueError, match=re.escape(text)):
        check_shares(loaders, 2)


def test_those_that_may_share_are_left_alone() -> None:
    shared = DataLoader(ROWS, sampler=DistributedSampler(ROWS, num_replicas=2, rank=0))
    ours = DataLoader(ROWS, batch_sampler=EvaluationBatchSampler(8, 4, 2, 0))
    check_shares({"train": shared, "val": [ours], "test": DataLoader(Stream())}, 2)
    check_shares({"train": [[1, 2]], "val": None}, 2)
