"""Images per second of this project's loop, of bare Lightning, and of a plain PyTorch loop.

Same network, same data pipeline, same fused AdamW, one thread. The three take turns for several
rounds; a round's first epoch is warm-up, and the median over rounds is printed.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from callbacks.module_contract import Deployable
from cli.building import build_callbacks, build_data, build_model
from cli.configuration import configure
from cli.known_warnings import hide_known_warnings
from cli.run import Run
from cli.trainer import build_trainer
from lightning_modules.optimizers import build_optimizer
from train import CALLBACKS

EPOCHS = 3  # of a round; the first is warm-up


class EpochTimes(pl.Callback):
    """Seconds from the first batch of an epoch to the end of its last."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.start = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seconds.append(time.perf_counter() - self.start)


class BareModule(pl.LightningModule):
    """The least that Lightning needs."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs, targets = batch
        return torch.nn.functional.cross_entropy(self.model(inputs["images"]), targets)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Lightning wants one where the data has a validation part; it is never called."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return build_optimizer(self.model, True, lr=1e-3)


def bare_trainer(callbacks: list[pl.Callback], **length: Any) -> pl.Trainer:
    """A Trainer that trains on one CPU and does nothing else."""
    return pl.Trainer(
        accelerator="cpu",
        devices=1,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        **length,
    )


def plain_loop(configuration: dict[str, Any], data: Any) -> float:
    """Seconds of an epoch of the usual hand-written loop."""
    module, _ = build_model(configuration, data)
    assert isinstance(module, Deployable)
    model = module.deployed.train()
    optimizer = build_optimizer(model, True, lr=1e-3)
    loader, times = data.train_dataloader(), []
    for epoch in range(EPOCHS):
        loader.batch_sampler.set_epoch(epoch)
        start = time.perf_counter()
        for batch in loader:
            inputs, targets = data.on_after_batch_transfer(batch, 0)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs["images"]), targets).backward()
            optimizer.step()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def bare_lightning(configuration: dict[str, Any], data: Any) -> float:
    """Seconds of an epoch of Lightning without logging, bar or callbacks."""
    times, (module, _) = EpochTimes(), build_model(configuration, data)
    assert isinstance(module, Deployable)
    with tempfile.TemporaryDirectory() as folder:
        fit = bare_trainer([times], max_epochs=EPOCHS, default_root_dir=folder)
        fit.fit(BareModule(module.deployed), datamodule=data)
    return min(times.seconds[1:])


def this_project(configuration: dict[str, Any], data: Any) -> float:
    """Seconds of an epoch with everything on that runs during training."""
    times = EpochTimes()
    with tempfile.TemporaryDirectory() as folder, silence():
        run = Run()
        run.folder = Path(folder)
        parts = build_callbacks(configuration, CALLBACKS, run)
        fit = build_trainer(configuration, [*parts.values(), times], run.folder)
        fit.fit(build_model(configuration, data)[0], datamodule=data)
    return min(times.seconds[1:])


@contextmanager
def silence() -> Iterator[None]:
    """Lines for a person are part of the work, but not of this command's answer."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


LOOPS: dict[str, Callable[[dict[str, Any], Any], float]] = {
    "plain PyTorch loop": plain_loop,
    "bare Lightning": bare_lightning,
    "this project, everything on": this_project,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    hide_known_warnings()
    torch.set_num_threads(1)
    disabled = [flag for name in ("lr_finder", "export") for flag in (f"--{name}.enabled", "false")]
    present = [flag for flag in disabled if flag == "false" or flag[2:-8] in CALLBACKS]
    common = ["--optimizer.lr", "1e-3", "--max_epochs", str(EPOCHS), "--accelerator", "cpu"]
    common += ["--limit_val_batches", "0"]
    configuration = configure([*present, *common, "--check_data", "off"], CALLBACKS)
    data = build_data(configuration)
    data.setup()
    seconds: dict[str, list[float]] = {name: [] for name in LOOPS}
    for _ in range(options.rounds):
        for name, loop in LOOPS.items():
            seconds[name].append(loop(configuration, data))
    count = data.train_dataloader().batch_sampler.samples_in(0, 10**9)
    base = statistics.median(seconds["bare Lightning"])
    print(f"{options.rounds} rounds in turn, one thread, batch size {data.batch_size}, medians")
    print(f"{'loop':<30}{'images/s':>10}{'x bare Lightning':>18}")
    figures = {}
    for name, values in seconds.items():
        median = statistics.median(values)
        figures[name] = {"images_per_second": count / median, "ratio": base / median}
        print(f"{name:<30}{count / median:>10,.0f}{base / median:>18.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
