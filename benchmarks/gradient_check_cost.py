"""What the gradient check costs in training: `python -m benchmarks.gradient_check_cost`.

Each round times the same steps of the digits network without the check and with every step
measured; the difference over `every_n_steps` is the cost at the default interval.
"""

import inspect
import json
import logging
import statistics
import time
from pathlib import Path

import pytorch_lightning as pl
import torch

from benchmarks.training import BareModule, bare_trainer
from callbacks.gradient_check import GradientCheck
from cli.run import Run
from datamodules.digits import Digits
from lightning_modules.deployed import deploy
from lightning_modules.networks.small_cnn import SmallCNN

ROUNDS = 7
STEPS = 40


class Clock(pl.Callback):
    """Seconds of each step, from one batch start to the next."""

    def __init__(self) -> None:
        self.starts: list[float] = []

    def on_train_batch_start(self, *arguments: object) -> None:
        self.starts.append(time.perf_counter())


def seconds_per_step(data: Digits, check: GradientCheck | None) -> float:
    clock = Clock()
    trainer = bare_trainer([clock, *([check] if check else [])], max_steps=STEPS)
    torch.manual_seed(0)
    network = SmallCNN(**data.network_arguments())
    module = BareModule(deploy(network, data.normalisation, data.input_spec))
    trainer.fit(module, datamodule=data)
    pairs = zip(clock.starts[5:], clock.starts[6:], strict=False)
    return statistics.median(after - before for before, after in pairs)


def main() -> None:
    torch.set_num_threads(1)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    data = Digits()
    data.setup()
    interval = inspect.signature(GradientCheck).parameters["every_n_steps"].default
    ratios = []
    for _ in range(ROUNDS):
        without = seconds_per_step(data, None)
        measured = seconds_per_step(data, GradientCheck(Run(), before_fit=False, every_n_steps=1))
        ratios.append(measured / without)
    every_step = statistics.median(ratios)
    result = {
        "measured step / plain step": round(every_step, 3),
        "rounds": [round(ratio, 3) for ratio in ratios],
        "every_n_steps": interval,
        "cost at that interval, %": round(100 * (every_step - 1) / interval, 3),
    }
    for name, value in result.items():
        print(f"{name:30} {value}")
    path = Path("build") / "benchmarks" / "gradient_check_cost.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
