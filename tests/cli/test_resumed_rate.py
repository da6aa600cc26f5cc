"""The rate that the table of changes promises is the one that the resumed run begins with."""

from pathlib import Path
from typing import Any

import pytest
import torch

from callbacks.exact_resume import KEY
from cli.resumed_rate import num_batches, resumed_rate
from tests.callbacks.test_other_batches import fit
from tests.tiny import TinyImages

SCHEDULE = {"name": "cosine", "warmup": 0.1}
CONFIG: dict[str, Any] = {
    "max_epochs": 4,
    "max_steps": -1,
    "accumulate_grad_batches": 1,
    "limit_train_batches": None,
    "overfit_batches": 0.0,
    "schedule": SCHEDULE,
    "optimizer": {"lr": "auto"},
}


@pytest.mark.parametrize("stop", [14, 15])
@pytest.mark.parametrize(
    ("change", "batch_size", "jumps"),
    [
        ({}, 8, False),
        ({}, 4, False),
        ({"accumulate_grad_batches": 2}, 4, False),
        ({"max_epochs": 8}, 8, True),
        ({"max_epochs": 8, "max_steps": 24}, 8, False),
        ({"max_epochs": -1, "max_steps": 30}, 8, True),
        ({"limit_train_batches": 5}, 8, False),
    ],
)
def test_it_comes_true(
    tmp_path: Path, stop: int, change: dict[str, Any], batch_size: int, jumps: bool
) -> None:
    fit(tmp_path, stop, 8)
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    checkpoint["description"]["config"] = CONFIG
    data = TinyImages(batch_size)
    data.setup()
    found = resumed_rate(checkpoint, CONFIG | change, data.train_dataloader())
    assert found is not None
    rates = fit(tmp_path, None, batch_size, **change)
    assert found[1] == rates.found[0][1]
    assert (found[1] > 1.2 * found[0]) == jumps


def test_what_is_not_ours_promises_nothing() -> None:
    place = {KEY: {"position": 0}}
    assert resumed_rate({"lr_schedulers": []}, CONFIG, []) is None
    assert resumed_rate(place | {"lr_schedulers": []}, CONFIG, []) is None
    assert resumed_rate(place | {"lr_schedulers": [{"_last_lr": [1.0]}]}, CONFIG, []) is None


@pytest.mark.parametrize(
    ("limit", "found"), [(None, 10), (1.0, 10), (0.35, 3), (4, 4), (40, 10), (1, 1)]
)
def test_the_part_of_an_epoch(limit: float | int | None, found: int) -> None:
    assert num_batches(10, CONFIG | {"limit_train_batches": limit}) == found
