"""A source that never answers is named, with and without workers, and can end the run."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from callbacks.exact_resume import ExactResume
from callbacks.lr_finder import own_batches
from datamodules.image_splits import ImageSplits
from datamodules.packed_images import FileImages
from datamodules.stalls import NoBatchError, StallWatch, at_sample
from tests.same_bits import assert_equal
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_split, tiny_trainer


class OddSource(FileImages):
    """Pictures of one colour; reading number 5 waits for whoever opens the pipe of that name."""

    def _read_one(self, index: int) -> np.ndarray:
        at_sample(index)
        path = Path(os.fsdecode(self.paths[index]))
        if path.is_fifo():
            path.read_bytes()
        return np.full((1, 8, 8), 10 * index, np.uint8)


class OddImages(TinyImages):
    def __init__(self, folder: Path, num_workers: int = 0, on_timeout: Any = "wait") -> None:
        super().__init__(batch_size=4, num_train=20, num_workers=num_workers)
        self.timeout, self.on_timeout, self.folder = 0.2, on_timeout, folder
        self.mean, self.std = [0.5], [0.5]  # else measured on all pictures

    def load(self) -> ImageSplits:
        paths = np.array([os.fsencode(self.folder / f"{number}") for number in range(20)])
        plan, hashes = {"channels": 1, "height": 8, "width": 8}, np.arange(20).astype("S16")
        train = OddSource(paths, np.arange(20) % 3, plan, hashes)
        return ImageSplits(["a", "b", "c"], train, tiny_split(6, 2), tiny_split(6, 3))


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "5")
    return tmp_path / "5"


def answer_later(path: Path, seconds: float) -> None:
    """Somebody opens, and closes, the other end of the pipe."""
    threading.Timer(seconds, lambda: path.open("wb").close()).start()


def told(capfd) -> list[str]:
    return [line for line in capfd.readouterr().out.splitlines() if "no batch" in line]


@pytest.mark.parametrize("by", ["loop", "rate finder"])
def test_the_sample_is_named_once_and_loading_goes_on(
    tmp_path: Path, pipe: Path, by: str, capfd
) -> None:
    loader = OddImages(tmp_path).train_dataloader()
    answer_later(pipe, 0.6)
    batches = loader if by == "loop" else own_batches(loader, 5, 5)
    assert sum(len(targets) for _, targets in batches) == 20
    assert told(capfd) == [
        "warning: no batch has come for 0.2 s (--data.timeout): it stands at sample 5 "
        f"({pipe}); still waiting"
    ]


@pytest.mark.slow
def test_the_worker_is_named(tmp_path: Path, pipe: Path, capfd) -> None:
    data = OddImages(tmp_path, num_workers=2)
    data.timeout = 15.0  # workers start in less
    answer_later(pipe, 25.0)
    assert sum(len(targets) for _, targets in data.train_dataloader()) == 20
    (line,) = told(capfd)
    assert f" is at sample 5 ({pipe}); still waiting" in line
    assert "(--data.timeout): worker " in line


def test_only_workers_that_read_are_named() -> None:
    watch = StallWatch(3, 7.0, False, "sample {}".format)
    assert watch.text().endswith("7 s (--data.timeout): no worker is reading")
    watch.places[1], watch.places[2] = 4, 0
    assert watch.text().endswith("worker 1 is at sample 4, worker 2 is at sample 0")


def test_a_slow_training_step_is_no_stall(tmp_path: Path, capfd) -> None:
    for _ in OddImages(tmp_path).train_dataloader():
        time.sleep(0.25)
    assert told(capfd) == []


def test_watching_ends_with_the_loader(tmp_path: Path) -> None:
    handler, before = signal.getsignal(signal.SIGALRM), threading.active_count()
    batches = iter(OddImages(tmp_path, on_timeout="stop").train_dataloader())
    next(batches)
    assert threading.active_count() == before + 1
    assert signal.getsignal(signal.SIGALRM) == handler  # the alarm is ours while we wait only
    batches.close()  # type: ignore[attr-defined]
    for _ in range(100):
        if threading.active_count() == before:
            return
        time.sleep(0.01)
    pytest.fail("the thread goes on")


def fit(folder: Path, data: OddImages, path: Path | None = None) -> Iterator[pl.Trainer]:
    checkpointing = Checkpointing(TinyRun(folder))
    trainer = tiny_trainer(
        folder,
        max_epochs=2,
        callbacks=[ExactResume(), checkpointing],
        plugins=[AtomicCheckpointIO()],
    )
    yield trainer
    trainer.fit(tiny_classifier(data), datamodule=data, ckpt_path=path, weights_only=True)


@pytest.mark.parametrize("epoch", [0, 1])
def test_where_asked_training_stops_with_a_checkpoint_to_go_on_from(
    tmp_path: Path, pipe: Path, epoch: int
) -> None:
    (tmp_path / "whole").mkdir()
    whole, parts = OddImages(tmp_path / "none"), OddImages(tmp_path, on_timeout="stop")
    [*fit(tmp_path / "whole", whole)]
    if epoch:  # the pipe is there from the second epoch on only
        pipe.rename(tmp_path / "later")

    class Appears(pl.Callback):
        def on_train_epoch_end(self, *arguments: Any) -> None:
            if epoch:
                (tmp_path / "later").rename(pipe)

    stopped = fit(tmp_path, parts)
    next(stopped).callbacks.append(Appears())
    message = r"no batch has come for 0.2 s .* at sample 5 .*; stopped, as --data.on_timeout asks"
    with pytest.raises(NoBatchError, match=message):
        next(stopped)
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert saved["epoch"] == epoch
    sampler = whole.train_dataloader().batch_sampler
    sampler.set_epoch(epoch)
    first = next(n for n, batch in enumerate(sampler) if 5 in batch.indices)
    assert saved["exact_resume"]["position"] == first > 0
    pipe.unlink()
    [*fit(tmp_path, parts, tmp_path / "last.ckpt")]
    expected, found = (
        torch.load(folder / "last.ckpt", weights_only=True)
        for folder in (tmp_path / "whole", tmp_path)
    )
    for name in ("state_dict", "optimizer_states", "global_step", "exact_resume", "loops"):
        assert_equal(found[name], expected[name], name)
