"""Where a run is logged and profiled, beside metrics.csv."""

from pathlib import Path
from typing import Any

from cli.parsing import Configuration


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


def build_profiler(name: str | None, folder: Path | None) -> Any:
    """Lightning's profiler of that name; it writes to the run folder."""
    if name is None:
        return None
    from pytorch_lightning import profilers

    kinds = {
        "simple": profilers.SimpleProfiler,
        "advanced": profilers.AdvancedProfiler,
        "pytorch": profilers.PyTorchProfiler,
    }
    return kinds[name](dirpath=folder, filename="profile")
