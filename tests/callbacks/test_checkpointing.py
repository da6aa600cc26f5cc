"""What is best, what is kept, and going on from it."""

import errno
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import STOP, Checkpointing, parse_interval
from callbacks.exact_resume import ExactResume
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer


def checkpointing_in(folder: Path, **arguments) -> Checkpointing:
    return Checkpointing(TinyRun(folder), **arguments)


def fit(folder: Path, checkpointing: Checkpointing, resume=None, others=(), **arguments):
    data = TinyImages()
    model = tiny_classifier(data, schedule={"name": "cosine"})
    trainer = tiny_trainer(
        folder,
        callbacks=[ExactResume(), checkpointing, *others],
        plugins=[AtomicCheckpointIO()],
        **arguments,
    )
    trainer.fit(model, datamodule=data, ckpt_path=resume)
    return trainer, model


@pytest.mark.parametrize(
    ("monitor", "better", "worse"),
    [
        ("val/accuracy", {"val/accuracy": 0.9, "val/loss": 9.0}, {"val/accuracy": 0.8}),
        ("val/loss", {"val/loss": 0.1}, {"val/loss": 0.2}),
        (
            "val/accuracy",
            {"val/accuracy": 0.9, "val/loss": 0.1},
            {"val/accuracy": 0.9, "val/loss": 0.2},
        ),
        ("val/loss", {"val/loss": 5.0}, {"val/loss": float("nan")}),
    ],
)
def test_what_is_better(monitor: str, better: dict, worse: dict) -> None:
    checkpointing = Checkpointing(
        TinyRun(), monitor=monitor, mode="min" if "loss" in monitor else "max"
    )
    assert checkpointing.ranking(better) > checkpointing.ranking(worse)


def test_best_and_last_are_written_and_foreign_files_stay(tmp_path: Path) -> None:
    (tmp_path / "foreign.ckpt").write_text("mine")
    trainer, model = fit(tmp_path, checkpointing_in(tmp_path, monitor="val/loss"), max_epochs=3)
    assert sorted(path.name for path in tmp_path.glob("*")) == [
        "best.ckpt",
        "foreign.ckpt",
        "last.ckpt",
        "previous.ckpt",
    ]
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert last["epoch"] == 3
    for name, value in model.state_dict().items():
        assert torch.equal(last["state_dict"][name], value)


@pytest.mark.parametrize("limit", ["max_steps", "should_stop"])
def test_an_epoch_cut_short_has_no_training_value_to_compare(tmp_path: Path, limit: str) -> None:
    others = [StopAfter(8)] if limit == "should_stop" else []
    steps = {"max_epochs": 2} if others else {"max_steps": 8, "max_epochs": -1}
    checkpointing = checkpointing_in(tmp_path, monitor="train/loss")
    fit(tmp_path, checkpointing, others=others, **steps)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"] == 8
    assert torch.load(tmp_path / "best.ckpt", weights_only=True)["global_step"] == 6

    (tmp_path / "short").mkdir()
    checkpointing = checkpointing_in(tmp_path / "short", monitor="train/loss")
    fit(tmp_path, checkpointing, others=[StopAfter(2)], max_epochs=2)
    assert checkpointing.best_path == tmp_path / "short" / "last.ckpt"


class StopAfter(pl.Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer, *_: Any) -> None:
        trainer.should_stop = trainer.global_step >= self.step


def test_the_best_is_kept_when_training_gets_worse(tmp_path: Path) -> None:
    """The rate explodes in the last epoch; the exported and tested weights are those before."""

    class Explodes(Checkpointing):
        def on_train_epoch_start(self, trainer, pl_module) -> None:
            super().on_train_epoch_start(trainer, pl_module)
            if trainer.current_epoch == 2:
                for group in trainer.optimizers[0].param_groups:
                    group["lr"] = 1e3
                trainer.lr_scheduler_configs[0].scheduler.base_lrs = [1e3, 1e3]

    checkpointing = Explodes(TinyRun(tmp_path), monitor="val/loss")
    fit(tmp_path, checkpointing, max_epochs=3)
    best = torch.load(tmp_path / "best.ckpt", weights_only=True)
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    found = [checkpoint["description"] for checkpoint in (best, last)]
    assert found[0]["epoch"] < 2 == found[1]["epoch"]
    assert found[0]["scores"]["val/loss"] < found[1]["scores"]["val/loss"]
    assert checkpointing.best_path == tmp_path / "best.ckpt"


class StopsAfterTwo(pl.Callback):
    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.should_stop = trainer.current_epoch == 1


def test_going_on_equals_never_having_stopped(tmp_path: Path) -> None:
    """Stopped after 2 epochs and resumed to 4: same steps, same rates, same weights."""
    whole, whole_model = fit(tmp_path, checkpointing_in(tmp_path / "whole"), max_epochs=4)
    half, _ = fit(
        tmp_path, checkpointing_in(tmp_path / "half"), max_epochs=4, others=[StopsAfterTwo()]
    )
    assert half.current_epoch == 2
    last = tmp_path / "half" / "last.ckpt"
    resumed, resumed_model = fit(
        tmp_path, checkpointing_in(tmp_path / "half"), resume=last, max_epochs=4
    )
    assert resumed.global_step == whole.global_step == 24
    rates = [trainer.optimizers[0].param_groups[0]["lr"] for trainer in (resumed, whole)]
    assert rates[0] == rates[1]
    for name, value in whole_model.state_dict().items():
        assert torch.equal(resumed_model.state_dict()[name], value), name


def test_without_validation_the_last_is_the_best(tmp_path: Path) -> None:
    checkpointing = checkpointing_in(tmp_path)
    fit(tmp_path, checkpointing, limit_val_batches=0)
    assert checkpointing.best_path == tmp_path / "last.ckpt"


def test_a_misspelt_metric_is_found_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--checkpoint.monitor acc: .*; did you mean"):
        fit(tmp_path, checkpointing_in(tmp_path, monitor="acc"))


@pytest.mark.parametrize(
    ("text", "steps", "seconds"),
    [("500", 500, math.inf), ("30s", None, 30), ("5min", None, 300), ("0.5h", None, 1800)],
)
def test_intervals(text: str, steps: int | None, seconds: float) -> None:
    assert parse_interval(text) == (steps, seconds)


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "5 days", "min", "5m", "nan"])
def test_bad_intervals(text: str) -> None:
    with pytest.raises(ValueError, match=r"--checkpoint_every must be optimizer steps \(500\)"):
        parse_interval(text)


def test_steps_between_checkpoints(tmp_path: Path) -> None:
    saved: list[int] = []

    class Notes(AtomicCheckpointIO):
        def write(self, checkpoint, path, keep) -> None:
            saved.append(checkpoint["global_step"])

    checkpointing = Checkpointing(TinyRun(tmp_path), "4")
    data = TinyImages()
    trainer = tiny_trainer(tmp_path, callbacks=[checkpointing], plugins=[Notes()], max_epochs=2)
    trainer.fit(tiny_classifier(data), datamodule=data)
    assert sorted(set(saved)) == [0, 4, 6, 10, 12]  # every 4 steps and at 6, where an epoch ends


def test_a_failed_write_is_said_and_training_goes_on(tmp_path: Path, capsys) -> None:
    """Two failures leave the older files; three in a row end the run."""
    failing = {"from": 3, "left": 2}

    class Full(AtomicCheckpointIO):
        def write(self, checkpoint, path, keep) -> None:
            if checkpoint["global_step"] >= failing["from"] and failing["left"]:
                failing["left"] -= 1
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write(checkpoint, path, keep)

    def run(left: int) -> None:
        failing["left"] = left
        data = TinyImages()
        checkpointing = checkpointing_in(tmp_path)
        checkpointing.interval = parse_interval("1")
        trainer = tiny_trainer(tmp_path, callbacks=[checkpointing], plugins=[Full()])
        trainer.fit(tiny_classifier(data), datamodule=data)

    run(left=2)
    output = capsys.readouterr().out
    assert output.count("No space left on device; the checkpoints written before are kept") == 2
    assert output.count("training goes on") == 2
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"] == 6
    with pytest.raises(OSError, match="3 failures in a row: training stops"):
        run(left=3)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"] == 2


def test_ranks_follow_the_one_that_got_the_signal(tmp_path: Path) -> None:
    """The largest vote wins: a signal over a checkpoint over nothing."""
    asked: list[int] = []

    def reduce(vote: torch.Tensor, reduce_op: str) -> torch.Tensor:
        asked.append(int(vote))
        return torch.tensor(STOP + 15)

    class Signals:
        received = 0

        def leave(self, number: int, checkpoint: Path | None) -> None:
            raise SystemExit(128 + number)

    checkpointing = checkpointing_in(tmp_path)
    checkpointing.signals = Signals()  # type: ignore[assignment]
    strategy = SimpleNamespace(reduce=reduce, root_device=torch.device("cpu"))
    trainer: Any = SimpleNamespace(
        world_size=2,
        strategy=strategy,
        fast_dev_run=0,
        state=SimpleNamespace(fn="fit"),
        global_step=3,
        lightning_module=None,
        save_checkpoint=lambda path, storage_options: asked.append(path.name),
        progress_bar_callback=None,
    )
    with pytest.raises(SystemExit) as stopped:
        checkpointing._between_steps(trainer, is_due=False)
    assert stopped.value.code == 143
    assert asked == [0, "last.ckpt"]


@pytest.mark.parametrize(("waited", "leaves"), [(1.0, False), (9.0, True)])
def test_a_signal_does_not_wait_for_a_long_validation(
    tmp_path: Path, waited: float, leaves: bool
) -> None:
    class Signals:
        received, seconds_waited, left = 0, waited, False

        def defer(self) -> None: ...

        def act_at_once(self, checkpoint: Path | None) -> None: ...

        def leave(self, number: int, checkpoint: Path | None) -> None:
            raise SystemExit(128 + number)

    class Signal(pl.Callback):
        """Comes as a validation begins; the next step is a boundary at which the run ends."""

        batches = 0

        def on_validation_start(self, trainer, pl_module) -> None:
            checkpointing.signals.received = 15

        def on_validation_batch_end(self, *arguments) -> None:
            self.batches += 1

    checkpointing, signal = checkpointing_in(tmp_path), Signal()
    checkpointing.signals = Signals()  # type: ignore[assignment]
    with pytest.raises(SystemExit):
        fit(tmp_path, checkpointing, others=[signal], max_epochs=2)
    assert signal.batches == (0 if leaves else 2)
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert last["global_step"] == (0 if leaves else 6)
