"""A run stopped anywhere and resumed ends with the bits of one that was never stopped."""

import tempfile
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from callbacks.early_stopping import EarlyStopping
from callbacks.ema import EMA
from callbacks.end_of_training import EndOfTraining
from callbacks.exact_resume import ExactResume, TimeLimit
from callbacks.metrics_csv import MetricsCsv
from datamodules.text_files import TextFiles
from tests.same_bits import assert_equal
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer
from tests.tiny_sources import write_texts

pytestmark = pytest.mark.slow


class StopAt(pl.Callback):
    """Asks to stop at the start of a later epoch or batch; stands for the signals of a process."""

    received, seconds_waited = 0, 0.0

    def __init__(self, place: int | None) -> None:
        self.left = place

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.count()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx and batch_idx % trainer.accumulate_grad_batches == 0:
            self.count()

    def count(self) -> None:
        if self.left is not None:
            self.received = 15 * (self.left <= 0)
            self.left -= 1

    def defer(self) -> None: ...

    def act_at_once(self, checkpoint: Path | None) -> None: ...

    def leave(self, number: int, checkpoint: Path | None) -> None:
        raise SystemExit(128 + number)


class BatchClock(TimeLimit):
    """A clock that goes on by a second a batch."""

    batches = 0

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self.batches += 1
        super().on_train_batch_end(*args, **kwargs)

    def time_elapsed(self, stage: str = "train") -> float:
        return self._offset + self.batches


def fit(
    folder: Path, make_data: Any, model: dict[str, Any], stop: int | None, arguments: dict[str, Any]
) -> bool:
    """Trains in a folder, from its newest checkpoint where there is one; whether it finished."""
    arguments, model = dict(arguments), dict(model)
    change = model.pop("change", None)
    data = make_data()
    data.setup()
    torch.manual_seed(1)
    module = tiny_classifier(data, **model)
    if change is not None:
        change(module)
    torch.manual_seed(2)
    signals = StopAt(stop)
    checkpointing = Checkpointing(TinyRun(folder, signals), "2", monitor="val/loss")
    metrics = MetricsCsv(folder / "metrics.csv")
    others: list[pl.Callback] = []
    if arguments.pop("ema", False):
        others.append(EMA(enabled=True, decay=0.9))
    limits: list[pl.Callback] = []
    if seconds := arguments.pop("seconds", None):
        limits.append(BatchClock(timedelta(seconds=seconds)))
    if patience := arguments.pop("patience", None):
        others.append(EarlyStopping(patience=patience, min_delta=9.0))  # all count as no better
    trainer = tiny_trainer(
        folder,
        callbacks=[
            *(ExactResume(metrics), *limits, EndOfTraining()),
            *(signals, checkpointing, *others),
        ],
        logger=metrics,
        plugins=[arguments.pop("writer", AtomicCheckpointIO())],
        **arguments,
    )
    last = folder / "last.ckpt"
    try:
        trainer.fit(module, datamodule=data, ckpt_path=last if last.is_file() else None)
    except SystemExit:
        return False
    return True


def tiny_texts(**arguments: Any) -> TextFiles:
    folder = Path(tempfile.mkdtemp())
    root = str(write_texts(folder / "texts", "{label}/{number}.txt"))
    return TextFiles(root=root, batch_size=4, cache_dir=str(folder), **arguments)


def falls_by_epoch(module: Any) -> None:
    """A schedule of the user's own, which Lightning steps at the end of every epoch."""

    def configure() -> dict[str, Any]:
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, factor=0.5, patience=0, threshold=0.99
        )
        settings = {"scheduler": schedule, "interval": "epoch", "monitor": "val/loss"}
        return {"optimizer": optimizer, "lr_scheduler": settings}

    module.configure_optimizers = configure


DROPOUT = {"model": {"dropout": 0.5}, "schedule": {"name": "cosine"}}
PLATEAU = {"schedule": {"name": "plateau", "patience": 0, "min_delta": 0.9, "warmup": 0.0}}
TEXT = {"network": "text_cnn", "model": {"dropout": 0.5}, "schedule": {"name": "cosine"}}
CASES = {
    "dropout and crops": (lambda: TinyImages(crop_padding=1), DROPOUT, {}),
    "accumulation": (TinyImages, DROPOUT, {"accumulate_grad_batches": 4}),
    "accumulation, odd": (
        lambda: TinyImages(num_train=60),
        DROPOUT,
        {"accumulate_grad_batches": 3},
    ),
    "validation in mid-epoch": (TinyImages, DROPOUT, {"val_check_interval": 0.5}),
    "plateau": (TinyImages, PLATEAU, {"val_check_interval": 0.5}),
    "average": (TinyImages, DROPOUT, {"ema": True}),
    "steps": (TinyImages, DROPOUT, {"max_steps": 16, "max_epochs": -1}),
    "part of an epoch": (TinyImages, DROPOUT, {"limit_train_batches": 5}),
    "text": (tiny_texts, TEXT, {"ema": True}),
}
LONG = {
    "workers": (lambda: TinyImages(crop_padding=1, num_workers=2), DROPOUT, {}),
    "text, workers": (lambda: tiny_texts(num_workers=2), TEXT, {}),
}


def check(tmp_path: Path, make_data: Any, model: dict, arguments: dict, stops: list[int]) -> None:
    arguments = {"max_epochs": 3} | arguments
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert fit(whole, make_data, model, None, arguments)
    finished = [fit(parts, make_data, model, stop, arguments) for stop in stops]
    assert not finished[0]
    assert fit(parts, make_data, model, None, arguments)
    assert_same_run(parts, whole)


def assert_same_run(parts: Path, whole: Path) -> None:
    expected = torch.load(whole / "last.ckpt", weights_only=True)
    found = torch.load(parts / "last.ckpt", weights_only=True)
    for name in ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "epoch"):
        assert_equal(found[name], expected[name], name)
    for name in ("current_model_state", "averaging_state", "train_outcomes", "exact_resume"):
        assert_equal(found.get(name), expected.get(name), name)
    assert (parts / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    best = [torch.load(folder / "best.ckpt", weights_only=True) for folder in (whole, parts)]
    assert_equal(best[1]["state_dict"], best[0]["state_dict"])
    assert best[1]["description"]["scores"] == best[0]["description"]["scores"]


@pytest.mark.parametrize("name", CASES)
def test_stopped_and_resumed(tmp_path: Path, name: str) -> None:
    check(tmp_path, *CASES[name], stops=[2, 1, 2])
    if name == "plateau":  # or nothing would have been proven about it
        (state,) = torch.load(tmp_path / "parts/last.ckpt", weights_only=True)["lr_schedulers"]
        assert state["plateau_scale"] < 1


@pytest.mark.parametrize("name", LONG)
def test_stopped_and_resumed_with_workers(tmp_path: Path, name: str) -> None:
    check(tmp_path, *LONG[name], stops=[4])


@pytest.mark.parametrize("stop", range(6))
def test_every_place_in_a_run(tmp_path: Path, stop: int) -> None:
    arguments = {"max_epochs": 2, "accumulate_grad_batches": 2, "val_check_interval": 3}
    check(tmp_path, lambda: TinyImages(crop_padding=1), DROPOUT, arguments, stops=[stop])


@pytest.mark.parametrize("stop", range(8))
def test_stopped_again_before_the_first_step(tmp_path: Path, stop: int) -> None:
    check(tmp_path, TinyImages, DROPOUT, {}, stops=[stop, 0])


@pytest.mark.parametrize("stop", [0, 6])
def test_at_the_start_of_an_epoch_where_steps_are_counted(tmp_path: Path, stop: int) -> None:
    arguments = {"max_steps": 16, "max_epochs": -1}
    check(tmp_path, TinyImages, DROPOUT, arguments, stops=[stop])


class DiesAfter(AtomicCheckpointIO):
    """Ends the process once so many files are written."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def write(self, *arguments: Any) -> None:
        super().write(*arguments)
        self.left -= 1
        if not self.left:
            raise SystemExit(137)


@pytest.mark.parametrize("cut", [{}, {"max_steps": 8}], ids=str)
def test_killed_after_any_file(tmp_path: Path, cut: dict[str, Any]) -> None:
    """Also between two files of one moment."""
    arguments = {"max_epochs": 2, "val_check_interval": 0.5} | cut
    whole = tmp_path / "whole"
    writer = DiesAfter(0)
    assert fit(whole, TinyImages, PLATEAU, None, arguments | {"writer": writer})
    assert writer.left < -6
    for number in range(1, 1 - writer.left):
        parts = tmp_path / str(number)
        assert not fit(parts, TinyImages, PLATEAU, None, arguments | {"writer": DiesAfter(number)})
        assert fit(parts, TinyImages, PLATEAU, None, arguments)
        assert_same_run(parts, whole)


def test_a_schedule_that_goes_by_epochs(tmp_path: Path) -> None:
    check(tmp_path, TinyImages, DROPOUT | {"change": falls_by_epoch}, {}, stops=[3])
    (state,) = torch.load(tmp_path / "parts/last.ckpt", weights_only=True)["lr_schedulers"]
    assert state["last_epoch"] == 3
    assert state["_last_lr"] == [0.025]  # not lowered by the first epoch, but by both others


WITHOUT_LENGTH = {"model": {"dropout": 0.5}}
CUT = {  # after so many batches, and so many optimizer steps
    "crops": (lambda: TinyImages(crop_padding=1), WITHOUT_LENGTH, {}, (8, 8), (16, 16)),
    # time runs out within a window, which is then trained to its end
    "windows": (TinyImages, WITHOUT_LENGTH, {"accumulate_grad_batches": 4}, (9, 3), (15, 5)),
    "average": (TinyImages, WITHOUT_LENGTH, {"ema": True}, (8, 8), (16, 16)),
    "plateau": (TinyImages, PLATEAU, {"val_check_interval": 0.5}, (8, 8), (16, 16)),
    "at a validation": (TinyImages, PLATEAU, {"val_check_interval": 0.5}, (9, 9), (16, 16)),
    "every second epoch": (TinyImages, PLATEAU, {"check_val_every_n_epoch": 2}, (8, 8), (16, 16)),
    "at an epoch's end": (TinyImages, PLATEAU, {"val_check_interval": 0.5}, (12, 12), (16, 16)),
}


@pytest.mark.parametrize("limit", ["seconds", "max_steps"])
@pytest.mark.parametrize("name", CUT)
def test_a_larger_limit_goes_on_in_the_same_epoch(tmp_path: Path, name: str, limit: str) -> None:
    """A limit reached in mid-epoch is only a stop, whatever was reported or validated for it."""
    make_data, model, arguments, *cuts = CUT[name]
    short, long = ({"max_epochs": 3, **arguments, limit: cut[limit == "max_steps"]} for cut in cuts)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert fit(whole, make_data, model, None, long)
    assert fit(parts, make_data, model, None, short)
    table = (parts / "metrics.csv").read_text()
    assert fit(parts, make_data, model, None, short)  # nothing is left to do
    assert (parts / "metrics.csv").read_text() == table
    assert fit(parts, make_data, model, None, long)
    assert_same_run(parts, whole)


def test_more_patience_goes_on_in_the_same_epoch(tmp_path: Path) -> None:
    arguments = {"max_epochs": 3, "val_check_interval": 0.5}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert fit(whole, TinyImages, WITHOUT_LENGTH, None, arguments | {"patience": 50})
    assert fit(parts, TinyImages, WITHOUT_LENGTH, None, arguments | {"patience": 2})
    stopped = torch.load(parts / "last.ckpt", weights_only=True)
    assert (stopped["global_step"], stopped["exact_resume"]["position"]) == (9, 3)
    assert fit(parts, TinyImages, WITHOUT_LENGTH, None, arguments | {"patience": 50})
    assert_same_run(parts, whole)


def test_an_epoch_that_ends_within_a_window_is_not_called_exact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"max_epochs": 3, "accumulate_grad_batches": 2, "val_check_interval": 3}
    assert fit(tmp_path, TinyImages, WITHOUT_LENGTH, None, arguments | {"patience": 2})
    stopped = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert "exact_resume" not in stopped
    steps = stopped["global_step"]
    assert fit(tmp_path, TinyImages, WITHOUT_LENGTH, None, arguments | {"patience": 50})
    assert "resuming inexactly" in capsys.readouterr().out
    rows = [line.split(",") for line in (tmp_path / "metrics.csv").read_text().splitlines()[1:]]
    numbers = [int(row[1]) for row in rows]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] > steps


def test_an_older_checkpoint_is_gone_on_from_exactly(tmp_path: Path) -> None:
    """Earlier versions counted no samples, and their schedules did not name what they watch."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    arguments = {"max_epochs": 2}
    assert fit(whole, TinyImages, PLATEAU, None, arguments)
    assert not fit(parts, TinyImages, PLATEAU, 3, arguments)
    checkpoint = torch.load(parts / "last.ckpt", weights_only=True)
    del checkpoint["exact_resume"]["samples"], checkpoint["lr_schedulers"][0]["monitor"]
    torch.save(checkpoint, parts / "last.ckpt")
    assert fit(parts, TinyImages, PLATEAU, None, arguments)
    assert_same_run(parts, whole)


class PlainLoader(TinyImages):
    """Torch's own loader, which begins at the first batch only."""

    def train_dataloader(self) -> Any:
        inputs, targets = self.samples("train")
        images, *_ = inputs.values()
        data = TensorDataset(torch.from_numpy(images), torch.from_numpy(targets))
        return DataLoader(data, batch_size=8)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch if len(batch) == 2 else super().on_after_batch_transfer(batch, 0)


def test_a_loader_that_cannot_start_within_an_epoch_begins_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not fit(tmp_path, PlainLoader, WITHOUT_LENGTH, 3, {"max_epochs": 2})
    assert fit(tmp_path, PlainLoader, WITHOUT_LENGTH, None, {"max_epochs": 2})
    shown = capsys.readouterr().out
    assert "has no start_at(batch), so that epoch 1 begins again" in shown
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert (last["epoch"], last["global_step"]) == (2, 3 + 12)


def test_a_checkpoint_from_elsewhere_brings_its_rows(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert fit(here, TinyImages, WITHOUT_LENGTH, None, {"max_epochs": 2})
    there.mkdir()
    (here / "last.ckpt").rename(there / "last.ckpt")
    assert fit(there, TinyImages, WITHOUT_LENGTH, None, {"max_epochs": 2})  # nothing is left to do
    assert (there / "metrics.csv").read_text() == (here / "metrics.csv").read_text()


def test_every_rank_draws_its_own_numbers_once_the_weights_are_made() -> None:
    """Equal dropout masks on all ranks would be one mask for the whole batch."""

    def first_draws(rank: int, seed: int) -> list[float]:
        torch.manual_seed(seed)
        trainer: Any = SimpleNamespace(global_rank=rank)
        ExactResume().on_train_start(trainer, SimpleNamespace())  # type: ignore[arg-type]
        return torch.rand(4).tolist()

    torch.manual_seed(7)
    untouched = torch.rand(4).tolist()
    drawn = [first_draws(rank, seed) for seed in (7, 8) for rank in range(4)]
    assert drawn[0] == untouched
    assert len({tuple(numbers) for numbers in drawn}) == 8
    assert first_draws(3, 7) == drawn[3]
