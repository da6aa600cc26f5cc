"""A run that goes on with other batches: its rate moves by the share of the run that is done."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from callbacks.exact_resume import ExactResume, matching_position
from datamodules.samplers import EpochBatchSampler
from tests.callbacks.test_exact_resume import StopAt, tiny_texts
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer

pytestmark = pytest.mark.slow

NUM_TRAIN = 48


class Rates(pl.Callback):
    """Notes the rate of each step by the share of the run that is done before it."""

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []
        self.seen: list[int] = []

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % trainer.accumulate_grad_batches == 0:
            epochs = trainer.current_epoch + batch_idx / float(trainer.num_training_batches)
            self.found.append((epochs, trainer.optimizers[0].param_groups[0]["lr"]))
        self.seen += [len(batch[1])]


def fit(
    folder: Path,
    stop: int | None,
    batch_size: int,
    schedule: str = "cosine",
    others: Sequence[pl.Callback] = (),
    **arguments: Any,
) -> Rates:
    data, rates, signals = TinyImages(batch_size), Rates(), StopAt(stop)
    data.setup()
    checkpointing = Checkpointing(TinyRun(folder, signals))
    trainer = tiny_trainer(
        folder,
        callbacks=[ExactResume(), signals, checkpointing, rates, *others],
        plugins=[AtomicCheckpointIO()],
        **{"max_epochs": 4} | arguments,
    )
    last = folder / "last.ckpt"
    model = tiny_classifier(data, schedule={"name": schedule, "warmup": 0.1})
    with suppress(SystemExit):
        trainer.fit(model, datamodule=data, ckpt_path=last if last.is_file() else None)
    return rates


@pytest.mark.parametrize("schedule", ["cosine", "onecycle", "step"])
@pytest.mark.parametrize(
    ("stop", "before", "after"),
    [
        (14, (4, 1), (16, 1)),  # at the start of an epoch: 12 batches and the start of each
        (13, (4, 1), (8, 1)),
        (20, (4, 1), (16, 1)),
        (9, (16, 1), (4, 1)),
        (9, (4, 2), (4, 1)),
        (9, (4, 1), (4, 3)),
        (10, (4, 3), (16, 1)),
    ],
)
def test_the_rate_goes_on_by_the_share_of_the_run(
    tmp_path: Path, schedule: str, stop: int, before: tuple[int, int], after: tuple[int, int]
) -> None:
    sizes = [
        {"batch_size": size, "accumulate_grad_batches": window} for size, window in (before, after)
    ]
    first = fit(tmp_path / "parts", stop, schedule=schedule, **sizes[0])
    rest = fit(tmp_path / "parts", None, schedule=schedule, **sizes[1])
    whole = fit(tmp_path / "whole", None, schedule=schedule, **sizes[1])
    assert first.found
    gone = round(NUM_TRAIN * (rest.found[0][0] - first.found[-1][0]))  # since its last step
    step, other_step = (size * window for size, window in (before, after))
    assert step - other_step < gone <= step  # nothing is skipped, less than a step comes again
    assert rest.found == whole.found[-len(rest.found) :]  # place by place, to the last


def test_no_sample_is_left_out(tmp_path: Path) -> None:
    first = fit(tmp_path, 3, 8)
    rest = fit(tmp_path, None, 10, max_epochs=1)
    assert first.seen == [8, 8, 8]
    assert rest.seen == [10, 10, 8]  # the last 28 of 48, so that 4 come twice


def test_ten_stops_with_other_batches_after_each(tmp_path: Path) -> None:
    """The rate stays on the one curve from the first step to the last."""
    found: list[tuple[float, float]] = []
    for batch_size in (8, 4, 16, 12, 8, 6, 4, 16, 8, 12):
        found += fit(tmp_path, 2, batch_size, max_epochs=6).found
    found += fit(tmp_path, None, 8, max_epochs=6).found
    fine = fit(tmp_path / "fine", None, 1, max_epochs=6).found
    curve = {round(NUM_TRAIN * epochs): rate for epochs, rate in fine}
    assert len(found) > 20
    for epochs, rate in found:
        # warm-up is a whole number of steps: there a curve of few steps is a little off
        if epochs > 0.9:
            assert rate == pytest.approx(curve[round(NUM_TRAIN * epochs)], rel=0.05)
    assert found[-1][0] == fit(tmp_path / "whole", None, 8, max_epochs=6).found[-1][0]


def test_a_run_that_is_measured_in_steps_stays_so(tmp_path: Path) -> None:
    limits = {"max_epochs": -1, "max_steps": 20}
    fit(tmp_path, 9, 8, **limits)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    rates = fit(tmp_path, None, 16, **limits)
    assert rates.found[0][1] == state["lr_schedulers"][0]["_last_lr"][0]
    assert len(rates.found) == 20 - state["global_step"]


def test_a_longer_run_goes_back_in_its_schedule(tmp_path: Path) -> None:
    fit(tmp_path, 14, 8)
    longer = fit(tmp_path, None, 8, max_epochs=8)
    whole = fit(tmp_path / "whole", None, 8, max_epochs=8)
    assert longer.found == whole.found[-len(longer.found) :]


def test_other_batches_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tmp_path, 3, 8)
    fit(tmp_path, None, 10, max_epochs=1)
    lines = capsys.readouterr().out.splitlines()
    wanted = "other batches than before: epoch 1 goes on at batch 3 of 5; 4 samples come twice"
    assert lines.count(wanted) == 1
    fit(tmp_path / "same", 3, 8)
    fit(tmp_path / "same", None, 8, max_epochs=1)
    assert "other batches" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("samples", "batch_size", "window", "position"),
    [
        (0, 8, 1, 0),
        (16, 8, 1, 2),
        (16, 12, 1, 1),
        (24, 8, 2, 2),
        (48, 8, 1, 5),
        (47, 50, 1, 0),
        (-3, 8, 1, 0),
    ],
)
def test_the_place_in_other_batches(
    samples: int, batch_size: int, window: int, position: int
) -> None:
    sampler = EpochBatchSampler(NUM_TRAIN, batch_size, 0)
    assert matching_position(sampler, samples, len(sampler), window) == position


def test_texts_go_on_too(tmp_path: Path) -> None:
    data = tiny_texts()
    data.setup()
    sampler: Any = data.train_dataloader().batch_sampler
    for position in range(len(sampler)):
        done = sampler.samples_in(0, position)
        assert matching_position(sampler, done, len(sampler), 1) == position
