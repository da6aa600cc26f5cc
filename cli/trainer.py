"""The Trainer of a configuration: what is always on, in its place around the chosen callbacks."""

from collections.abc import Iterable
from pathlib import Path

import pytorch_lightning as pl

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.end_of_training import EndOfTraining
from callbacks.exact_resume import ExactResume, TimeLimit
from callbacks.metrics_csv import MetricsCsv
from callbacks.progress import EpochProgress
from callbacks.shared_samples import SharedSamples
from callbacks.step_log import StepLog
from cli.loggers import build_loggers, build_profiler
from cli.parsing import Configuration, trainer_arguments


def build_trainer(
    configuration: Configuration, chosen: Iterable[pl.Callback], folder: Path | None
) -> pl.Trainer:
    """A Trainer whose callbacks run in the order in which they stand here.

    Args:
        chosen: The callbacks with flags, in their order.
        folder: Where it writes to; without one nothing is logged.
    """
    arguments = trainer_arguments(configuration)
    shows_progress = arguments["enable_progress_bar"] is not False
    metrics = MetricsCsv(folder / "metrics.csv" if folder else None)
    loggers = build_loggers(configuration, folder) if folder else []
    steps = [StepLog(loggers, configuration["log_every_n_steps"])] if loggers else []
    callbacks = [
        SharedSamples(),  # refuses loaders before any of their batches is used
        ExactResume(metrics),  # puts back what the others start from
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
