"""What is changed for the machine, and that each change is said."""

from typing import Any

import pytest
import torch

from cli.adaptations import UNUSED, adapt, check_strategy_of_frozen, num_processes


def settings(**changes: Any) -> dict[str, Any]:
    plain = {
        "accelerator": "auto", "devices": "auto", "num_nodes": 1, "strategy": "auto",
        "sync_batchnorm": False, "precision": None, "data": {"batch_size": 64},
        "unfreeze": {"enabled": False}, "overfit_batches": 0.0, "limit_train_batches": None,
        "limit_val_batches": None, "fast_dev_run": False, "logger": "csv",
    }  # fmt: skip
    return plain | changes


def with_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("gpus", "changes", "size"),
    [
        (3, {}, 63),
        (6, {}, 60),
        (3, {"devices": -1}, 63),
        (3, {"accelerator": "cuda"}, 63),
        (3, {"num_nodes": 2}, 60),
        (3, {"data": {"batch_size": 2}}, 3),
        (4, {}, 64),
        (3, {"accelerator": "cpu"}, 64),
        (0, {}, 64),
        (8, {"devices": 3}, 64),  # a number that was asked for is kept to, and refused elsewhere
        (8, {"devices": [0, 1, 2]}, 64),
        (3, {"data": {}}, None),  # a data source without that setting
    ],
)
def test_the_batch_fits_the_devices_that_are_found(
    monkeypatch: pytest.MonkeyPatch, gpus: int, changes: dict[str, Any], size: int | None
) -> None:
    with_gpus(monkeypatch, gpus)
    configuration = settings(**changes)
    before = configuration["data"].get("batch_size")
    notes = adapt(configuration)
    assert configuration["data"].get("batch_size") == size
    assert len(notes) == (size != before)
    if notes:
        assert notes[0].startswith(f"batch size {size} instead of {before}: ")


@pytest.mark.parametrize(("gpus", "accelerator"), [(0, "auto"), (0, "cpu"), (2, "cpu")])
def test_all_gpus_of_a_machine_without_one(
    monkeypatch: pytest.MonkeyPatch, gpus: int, accelerator: str
) -> None:
    with_gpus(monkeypatch, gpus)
    configuration = settings(accelerator=accelerator, devices=-1)
    (note,) = adapt(configuration)
    assert configuration["devices"] == 1
    assert "one process on the CPU" in note
    with_gpus(monkeypatch, 2)
    configuration = settings(devices=-1)
    assert not adapt(configuration)
    assert configuration["devices"] == -1


def test_numbers_with_commas_are_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, 4)
    for text, expected in (("0,2", [0, 2]), ("3,", [3])):
        configuration = settings(devices=text)
        assert not adapt(configuration)
        assert configuration["devices"] == expected
        assert num_processes(configuration) == len(expected)


@pytest.mark.parametrize(
    ("changes", "strategy"),
    [
        ({"devices": 4}, UNUSED),
        ({"devices": [0, 1]}, UNUSED),
        ({"devices": 1}, "auto"),
        ({"devices": 1, "num_nodes": 2}, UNUSED),
        ({"devices": 4, "strategy": UNUSED}, UNUSED),
        ({"devices": 4, "unfreeze": {"enabled": False}}, "auto"),
        ({"devices": 4, "unfreeze": None}, "auto"),  # the callback was deleted
    ],
)
def test_frozen_layers_choose_the_strategy_that_bears_them(
    changes: dict[str, Any], strategy: str
) -> None:
    configuration = settings(**{"unfreeze": {"enabled": True}} | changes)
    before = configuration["strategy"]
    assert len(adapt(configuration)) == (strategy != before)
    assert configuration["strategy"] == strategy
    check_strategy_of_frozen(configuration)


def test_frozen_layers_refuse_a_strategy_that_was_asked_for() -> None:
    configuration = settings(unfreeze={"enabled": True}, devices=4, strategy="ddp")
    assert not adapt(configuration)
    with pytest.raises(ValueError, match=f"--strategy ddp does not bear .* --strategy {UNUSED}"):
        check_strategy_of_frozen(configuration)


@pytest.mark.parametrize(
    ("short", "expected"), [("bf16", "bf16-mixed"), ("32", "32-true"), ("64-true", "64-true")]
)
def test_older_names_of_precisions(short: str, expected: str) -> None:
    configuration = settings(precision=short)
    assert adapt(configuration) == (
        [] if short == expected else [f"precision {short} is {expected}"]
    )
    assert configuration["precision"] == expected


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({"limit_train_batches": 2, "limit_val_batches": 0.5}, []),
        ({"overfit_batches": 4}, []),
        (
            {"overfit_batches": 4, "limit_train_batches": 2, "limit_val_batches": 0.5},
            [
                "--overfit_batches 4 takes the place of --limit_train_batches 2 and "
                "--limit_val_batches 0.5"
            ],
        ),
        ({"fast_dev_run": True}, []),
        (
            {"fast_dev_run": 3, "logger": "wandb"},
            ["--logger wandb is not used: --fast_dev_run logs nothing"],
        ),
    ],
)
def test_what_has_no_effect_is_said(changes: dict[str, Any], notes: list[str]) -> None:
    assert adapt(settings(accelerator="cpu", **changes)) == notes
