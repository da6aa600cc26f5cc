"""The Trainer of a configuration: its callbacks, where it logs to, and what times it."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.profilers import (
    AdvancedProfiler,
    Profiler,
    PyTorchProfiler,
    SimpleProfiler,
)

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.end_of_training import EndOfTraining
from callbacks.exact_resume import ExactResume, TimeLimit
from callbacks.logged_sums import LoggedSums
from callbacks.metrics_csv import MetricsCsv
from callbacks.progress import EpochProgress
from callbacks.shared_samples import SharedSamples
from callbacks.start_lines import StartLines
from callbacks.step_log import StepLog
from cli.parsing import Configuration, trainer_arguments
from cli.ranks import say
from datamodules.contract import part
from datamodules.data_check import notes_of


def build_trainer(
    configuration: Configuration,
    chosen: Iterable[pl.Callback],
    folder: Path | None,
    data: Any = None,
) -> pl.Trainer:
    """A Trainer whose callbacks run in the order in which they stand here.

    Args:
        chosen: The callbacks with flags, in their order.
        folder: Where it writes to; without one nothing is logged.
        data: Where it is given, what was noticed of it, and how it is loaded, is said when training
            starts.
    """
    arguments = trainer_arguments(configuration)
    shows_progress = arguments["enable_progress_bar"] is not False
    metrics = MetricsCsv(folder / "metrics.csv" if folder else None)
    loggers = build_loggers(configuration, folder) if folder else []
    steps = [StepLog(loggers, configuration["log_every_n_steps"])] if loggers else []
    said = []
    if data is not None:
        notes = notes_of(data, configuration["check_data"])
        said.append(StartLines(lambda: [*notes, *part(data, "loading")]))
    callbacks = [
        *said,
        SharedSamples(),  # refuses loaders before any of their batches is used
        ExactResume(metrics),  # puts back what the others start from
        LoggedSums(),  # the same for what a module logs by itself
        TimeLimit(arguments.pop("max_time")),
        EndOfTraining(),  # after what limits the time, before what writes checkpoints
        *steps,
        *chosen,
        *([EpochProgress()] if shows_progress else []),  # shows what all others have logged
    ]
    return pl.Trainer(
        **arguments
        | {
            "enable_progress_bar": shows_progress,
            "enable_model_summary": bool(arguments["enable_model_summary"]),
            "num_sanity_val_steps": arguments["num_sanity_val_steps"] or 0,
        },
        callbacks=callbacks,
        logger=[metrics, *loggers] if folder else False,
        profiler=build_profiler(configuration["profiler"], folder),
        plugins=[AtomicCheckpointIO()],
        use_distributed_sampler=False,
        enable_checkpointing=False,  # `Checkpointing` does it, between two steps
        default_root_dir=folder,
        log_every_n_steps=1,
    )


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
