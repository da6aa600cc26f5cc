"""Where a run is logged and profiled, beside metrics.csv."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytorch_lightning.profilers import (
    AdvancedProfiler,
    Profiler,
    PyTorchProfiler,
    SimpleProfiler,
)

from cli.parsing import Configuration
from cli.ranks import say


def build_loggers(configuration: Configuration, folder: Path | None) -> list[Any]:
    """The loggers that `--logger` asks for; a resumed run goes on in its folder's W&B run."""
    loggers: list[Any] = []
    if configuration["logger"] == "tensorboard":
        from pytorch_lightning.loggers import TensorBoardLogger

        # the test's figures stand with the hyperparameters, instead of an empty "hp_metric"
        place, name = folder or ".", "tensorboard"
        loggers.append(TensorBoardLogger(place, name, version="", default_hp_metric=False))
    if configuration["logger"] == "wandb":
        from callbacks.wandb_report import build_wandb_logger

        project, experiment = configuration["wandb"]["project"], configuration["experiment"]
        loggers.append(build_wandb_logger(folder, project, experiment))
    for logger in loggers:
        logger.log_hyperparams(configuration)
    return loggers


def build_profiler(name: str | None, folder: Path | None) -> Profiler | None:
    """Lightning's profiler of that name; it writes to the run folder."""
    if name is None:
        return None
    if folder is None:
        say("no profile: this run leaves no folder to write it to")
        return None
    if name == "pytorch":
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its start and stop are no news
        # named modules would be hooks, with which no copy of the module can be made
        return OperatorProfiler(folder, "profile", record_module_names=False, acc_events=True)
    kind = {"simple": SimpleProfiler, "advanced": AdvancedProfiler}[name]
    return kind(dirpath=folder, filename="profile")


class OperatorProfiler(PyTorchProfiler):
    """Lightning's, which fails where a run ends before the first step that is recorded."""

    def summary(self) -> str:
        with suppress(AssertionError):
            return super().summary()
        return "nothing was recorded: the run was too short"

    def teardown(self, stage: str | None) -> None:
        with suppress(AssertionError):
            super().teardown(stage)
        self.profiler = None
