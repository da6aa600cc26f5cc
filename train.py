"""Trains a classifier, tests it, and leaves a proven export: `python train.py` needs no flag.

The only file that joins all parts. It reads from top to bottom in the order in which things
happen: configuration, data, model, callbacks, fit, test, export.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed before CUDA for determinism
# waiting CPU threads sleep instead of spinning: on a shared machine that is several times faster
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytorch_lightning as pl

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.metrics_csv import MetricsCsv
from callbacks.progress import EpochProgress
from cli.checks import adapt_to_cpu, ignore_stray_slurm
from cli.configuration import build_callbacks, build_data, configure
from cli.known_warnings import hide_known_warnings
from cli.parsing import Configuration, recorded, to_primitive, to_yaml, trainer_arguments
from cli.problems import UsageError, is_message
from cli.run_folder import create_run_folder, is_rank_zero
from lightning_modules.classifier import Classifier
from lightning_modules.deployed import (
    DESCRIPTION_FORMAT,
    deploy,
    network_arguments,
    network_class,
    read_checkpoint,
    typed_arguments,
)

PROJECT = Path(__file__).resolve().parent


# ---- parts --------------------------------------------------------------------------------


def build_model(configuration: Configuration, data: Any) -> Classifier:
    """The network for this data, inside the module that trains it."""
    arguments = dict(configuration["model"])
    name = arguments.pop("name")
    activation_checkpointing = arguments.pop("checkpoint_activations")
    network = network_class(name, configuration["allow_external_code"])
    arguments = to_primitive(network_arguments(network, data.network_arguments(), arguments))
    normalisation = data.normalisation if data.kind == "image" else None
    built = network(**typed_arguments(network, arguments))
    if data.kind == "text":
        data.initialise(built)
    model = deploy(built, data.kind, normalisation)
    if configuration["compile"]:
        model.compile()  # in place: parameter names stay as they are
    description = {
        "format": DESCRIPTION_FORMAT,
        "kind": data.kind,
        "network": {"name": name, "arguments": arguments},
        "class_names": data.class_names,
        "input_spec": data.input_spec,
        "preprocessing": data.preprocessing,
        "files": data.files,
        "normalisation": normalisation,
        "fingerprint": data.fingerprint,
        "versions": library_versions(),
        "git_commit": git_commit(),
        "config": recorded(configuration),
    }
    return Classifier(
        model,
        data.train_targets,
        description,
        configuration["optimizer"],
        configuration["schedule"],
        configuration["loss"],
        activation_checkpointing,
    )


def build_trainer(
    configuration: Configuration, parts: Mapping[str, pl.Callback], folder: Path | None
) -> pl.Trainer:
    arguments = trainer_arguments(configuration)
    progress = [] if arguments["enable_progress_bar"] is False else [EpochProgress()]
    return pl.Trainer(
        **arguments
        | {
            "enable_progress_bar": bool(progress),
            "enable_model_summary": bool(arguments["enable_model_summary"]),
            "num_sanity_val_steps": arguments["num_sanity_val_steps"] or 0,
        },
        callbacks=[*parts.values(), *progress],
        logger=build_loggers(configuration, folder),
        profiler=build_profiler(configuration["profiler"], folder),
        plugins=[AtomicCheckpointIO()],
        use_distributed_sampler=False,
        enable_checkpointing="checkpoint" in parts,
        default_root_dir=folder,
        log_every_n_steps=1,
    )


def build_loggers(configuration: Configuration, folder: Path | None) -> list[Any]:
    if configuration["fast_dev_run"]:
        return []
    loggers: list[Any] = [MetricsCsv(folder / "metrics.csv" if folder else None)]
    if configuration["logger"] == "tensorboard":
        from pytorch_lightning.loggers import TensorBoardLogger

        loggers.append(TensorBoardLogger(folder or ".", name="tensorboard", version=""))
    if configuration["logger"] == "wandb":
        from callbacks.wandb_report import build_wandb_logger

        project = configuration["wandb"]["project"]
        loggers.append(build_wandb_logger(folder, project, configuration["experiment"]))
    for logger in loggers[1:]:
        logger.log_hyperparams(configuration)
    return loggers


def build_profiler(name: str | None, folder: Path | None) -> Any:
    if name is None:
        return None
    from pytorch_lightning import profilers

    kinds = {
        "simple": profilers.SimpleProfiler,
        "advanced": profilers.AdvancedProfiler,
        "pytorch": profilers.PyTorchProfiler,
    }
    return kinds[name](dirpath=folder, filename="profile")


def library_versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "pytorch-lightning", "torchmetrics", "numpy")}


def git_commit() -> str | None:
    """The commit this code is at, with "-dirty" where files differ from it."""
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


# ---- the job ------------------------------------------------------------------------------


def run(configuration: Configuration) -> int:
    """Fit, test and export; returns the exit code."""
    pl.seed_everything(configuration["seed"], workers=True, verbose=False)
    data = build_data(configuration)
    data.prepare_data()
    data.setup()
    model = build_model(configuration, data)
    start_from = configuration["test_only"] or configuration["resume"]
    if start_from:
        check_same_model(start_from, read_checkpoint(start_from)["description"], model)
    if configuration["test_only"]:
        return run_test_only(configuration, model, data)
    folder = prepare_folder(configuration)
    parts = build_callbacks(configuration)
    bind_callbacks(parts, folder, configuration["allow_external_code"])
    trainer = build_trainer(configuration, parts, folder)
    print_start(configuration, model, trainer, folder)
    trainer.fit(model, datamodule=data, ckpt_path=configuration["resume"])
    if configuration["fast_dev_run"]:
        trainer.test(model, datamodule=data, verbose=False)
        return 0
    export, checkpoint = parts.get("export"), parts.get("checkpoint")
    best = checkpoint.best_path if checkpoint else None
    if export:
        export.start(trainer, data, best)
    trainer.test(model, datamodule=data, ckpt_path=best, verbose=False)
    if not trainer.is_global_zero:
        return 0
    code = export.wait() if export else 0
    if "wandb" in parts and folder:
        parts["wandb"].log_bundle(folder / "export")
        parts["wandb"].finish()
    print(f"run folder: {folder}")
    return code


def run_test_only(configuration: Configuration, model: Classifier, data: Any) -> int:
    """Prints the test report of a checkpoint on the data it was made for."""
    model.load_state_dict(read_checkpoint(configuration["test_only"])["state_dict"])
    parts = {k: v for k, v in build_callbacks(configuration).items() if k == "test_report"}
    trainer = build_trainer(configuration | {"logger": "csv"}, parts, None)
    trainer.test(model, datamodule=data, verbose=False)
    return 0


def prepare_folder(configuration: Configuration) -> Path | None:
    """The run folder, with the configuration inside; a resumed run goes on in its own."""
    if configuration["fast_dev_run"]:
        return None
    if configuration["resume"]:
        return Path(configuration["resume"]).resolve().parent.parent
    folder = create_run_folder(configuration["runs_dir"], configuration["experiment"])
    if folder and is_rank_zero():
        (folder / "config.yaml").write_text(to_yaml(configuration), encoding="utf-8")
    return folder


def bind_callbacks(parts: Mapping[str, Any], folder: Path | None, external: bool) -> None:
    """Hands callbacks what their flags cannot: the run folder and other parts of the project."""
    for key in ("lr_finder", "test_report", "learning_curves", "wandb"):
        if key in parts:
            parts[key].bind(folder)
    if "gradient_check" in parts:
        from lightning_modules.finite_differences import check_model

        parts["gradient_check"].bind(folder, check_model)
    if "checkpoint" in parts:
        parts["checkpoint"].bind(folder / "checkpoints" if folder else None)
    if "export" in parts:
        from exporters.spec import check_export

        parts["export"].bind(folder, check_export, PROJECT / "export.py", external)


def check_same_model(path: str, description: Mapping[str, Any], model: Classifier) -> None:
    """Refuses a checkpoint of another network or other classes.

    Raises:
        ValueError: What differs.
    """
    for key, name in (("network", "network"), ("class_names", "classes"), ("kind", "kind")):
        if description[key] != model.description[key]:
            raise ValueError(
                f"{path} was trained with {name} {description[key]}, but this run has "
                f"{model.description[key]}"
            )


def print_start(
    configuration: Configuration, model: Classifier, trainer: pl.Trainer, folder: Path | None
) -> None:
    parameters = sum(p.numel() for p in model.parameters())
    kind = trainer.strategy.root_device.type
    trainer.print(
        f"{configuration['model']['name']} ({parameters:,} parameters) on "
        f"{configuration['data']['name']}, {trainer.world_size} x {kind}, "
        f"precision {trainer.precision}, seed {configuration['seed']}"
    )
    if folder:
        trainer.print(f"run folder: {folder}")


# ---- the process --------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """Runs; turns expected errors into one message and an exit code."""
    hide_known_warnings()
    notes = [ignore_stray_slurm()]
    try:
        configuration = configure(argv)
        notes += adapt_to_cpu(configuration)
    except UsageError as error:
        print(*(f"error: {problem}" for problem in error.problems), sep="\n", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if is_rank_zero():
        print(*(f"{note}\n" for note in notes if note), sep="", end="")
    try:
        return run(configuration)
    except Exception as error:
        if not is_message(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
