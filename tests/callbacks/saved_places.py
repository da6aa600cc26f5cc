"""Shows a checkpoint's place in training and all of Lightning's counters as one row of text.

    last.ckpt 1:2:8 samples 16 logged 7 epochs 2,2,1,1 batches 8,8,8,7/2,2,2,1 steps 8/2

The place is whole epochs, batches of the epoch and optimizer steps done; `-` for the batch says
that a resume is not exact. A counter is ready,started,processed,completed (or ready,completed), one
number where these are alike; after `/` that of the current epoch where it differs; `!` says that
the last batch was reached. What is 0 is left out, and what was cleared (gradients) or stepped
(rates) as often as the optimizer.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from callbacks.early_stopping import EarlyStopping
from callbacks.end_of_training import EndOfTraining
from callbacks.exact_resume import ExactResume
from tests.callbacks.test_exact_resume import BatchClock, StopAt
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer

COUNTERS = {
    "epochs": "epoch_progress",
    "batches": "epoch_loop.batch_progress",
    "manual": "epoch_loop.manual_optimization.optim_step_progress",
    "rates": "epoch_loop.scheduler_progress",
    "val": "epoch_loop.val_loop.batch_progress",
}
BETTER = itertools.count()  # every validation is the best so far, whatever was learnt
OPTIMIZER = "epoch_loop.automatic_optimization.optim_progress"


class Recorder(AtomicCheckpointIO):
    """Writes, and notes a row for each file."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[str] = []
        self.files: dict[str, str] = {}

    def write(self, checkpoint: dict[str, Any], path: Path, keep: Path | None) -> None:
        super().write(checkpoint, path, keep)
        found, name = row(checkpoint), "pending" if "pending" in path.name else path.name
        is_same = found in [*self.files.values()][-1:]
        self.files.pop(path.name, None)
        self.files[path.name] = found
        self.rows.append(f"{name} {'as above' if is_same else found}")


def row(checkpoint: dict[str, Any]) -> str:
    """The place and every counter of a checkpoint."""
    loops = dict(checkpoint["loops"]["fit_loop"])
    exact = checkpoint.get("exact_resume", {"position": "-", "samples": 0})
    optimizer = loops.pop(OPTIMIZER)["optimizer"]
    counts = {
        "samples": exact["samples"],
        "logged": loops.pop("epoch_loop.state_dict")["_batches_that_stepped"],
        **{short: counted(loops.pop(key)) for short, key in COUNTERS.items()},
        "steps": counted(optimizer["step"]),
        "cleared": counted(optimizer["zero_grad"]),
    }
    assert not any(loops.values()), "a counter that is not looked at"
    for name in ("cleared", "rates"):
        if counts[name] == counts["steps"]:
            del counts[name]
    shown = [f"{name} {count}" for name, count in counts.items() if count not in (0, "0")]
    is_due = checkpoint["callbacks"]["Checkpointing"]["is_best_due"]
    place = f"{checkpoint['epoch']}:{exact['position']}:{checkpoint['global_step']}"
    return " ".join([place, *shown, *["best due"] * is_due])


def counted(progress: dict[str, Any]) -> str:
    """One kind of counter."""
    numbers = [short(progress[key]) for key in ("total", "current")]
    return "/".join(dict.fromkeys(numbers)) + "!" * progress.get("is_last_batch", False)


def short(counts: dict[str, int]) -> str:
    names = ("ready", "started", "processed", "completed")
    numbers = [str(counts[name]) for name in names if name in counts]
    return numbers[0] if len(set(numbers)) == 1 else ",".join(numbers)


class TwoOptimizers(pl.LightningModule):
    """A module of another make: manual optimization, a step of each of two optimizers a batch."""

    automatic_optimization = False

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 8), nn.Linear(8, 3)

    def loss(self, batch: Any) -> torch.Tensor:
        images, targets = batch
        images = next(iter(images.values())) if isinstance(images, dict) else images
        logits = self.second(self.first(images.flatten(1).float() / 255))
        return nn.functional.cross_entropy(logits, targets)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizers: Any = self.optimizers()
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        for optimizer in optimizers:
            optimizer.step()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), 0.1) for part in (self.first, self.second)]


class StallsAt(pl.Callback):
    """No batch comes in time after so many."""

    def __init__(self, num_batches: int) -> None:
        self.left = num_batches

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]

        def wait(batch: Any, dataloader_idx: int) -> Any:
            if trainer.training:
                self.left -= 1
                if self.left < 0:
                    raise TimeoutError
            return batch

        data.on_before_batch_transfer = wait


class SavesInValidation(pl.Callback):
    """A callback of the user's own."""

    def on_validation_batch_start(self, trainer: pl.Trainer, *arguments: Any) -> None:
        if trainer.global_step == 3:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "own.ckpt")


@dataclass
class Event:
    """Runs of six batches an epoch (48 samples in eights) that go on from one another."""

    arguments: dict[str, Any] = field(default_factory=dict)
    stops: Sequence[int | None] = (None,)  # places at which a signal comes, a run each
    batch_sizes: Sequence[int] = (8, 8, 8)
    interval: str = "5min"
    seconds: int | None = None  # a clock of a second a batch
    patience: int | None = None
    others: Sequence[type[pl.Callback] | pl.Callback] = ()
    two_optimizers: bool = False


def rows_of(event: Event, folder: Path) -> list[str]:
    """All files that an event's runs have written, and what last.ckpt is after each run."""
    found: list[str] = []
    files: dict[str, str] = {}
    for stop, batch_size in zip(event.stops, event.batch_sizes, strict=False):
        data, recorder, signals = TinyImages(batch_size), Recorder(), StopAt(stop)
        data.setup()
        run = TinyRun(folder, signals)
        checkpointing = Checkpointing(run, event.interval, monitor="val/loss")
        checkpointing.ranking = lambda metrics: [float(next(BETTER))]  # type: ignore
        before: list[pl.Callback] = [ExactResume()]
        if event.seconds:
            before.append(BatchClock(timedelta(seconds=event.seconds)))
        after: list[pl.Callback] = [signals, checkpointing]
        if event.patience:
            after.append(EarlyStopping(patience=event.patience, min_delta=9.0))
        others = [other() if isinstance(other, type) else other for other in event.others]
        trainer = tiny_trainer(
            folder,
            callbacks=[*before, EndOfTraining(), *after, *others],
            plugins=[recorder],
            **{"max_epochs": 2} | event.arguments,
        )
        last = folder / "last.ckpt"
        module = TwoOptimizers() if event.two_optimizers else tiny_classifier(data)
        try:
            trainer.fit(module, datamodule=data, ckpt_path=last if last.is_file() else None)
        except (SystemExit, TimeoutError) as error:
            recorder.rows.append(type(error).__name__)
        found += recorder.rows
        files |= recorder.files
        newest = row(torch.load(last, weights_only=True))
        if newest != files["last.ckpt"]:
            found.append(f"= last.ckpt {newest}")
    return found
