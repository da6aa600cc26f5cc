"""Trains a classifier, tests it, and leaves a proven export: `python train.py` needs no flag.

The only file that joins all parts. It reads from top to bottom in the order in which things
happen: configuration, data, model, callbacks, fit, test, export.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed before CUDA for determinism
# waiting CPU threads sleep instead of spinning: on a shared machine that is several times faster
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytorch_lightning as pl
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.end_of_training import EndOfTraining
from callbacks.exact_resume import ExactResume, TimeLimit
from callbacks.metrics_csv import MetricsCsv
from callbacks.progress import EpochProgress
from callbacks.replay import Replay, Reproduced
from callbacks.shared_samples import SharedSamples
from callbacks.start_lines import StartLines
from callbacks.step_log import StepLog
from cli.adaptations import adapt, needless
from cli.checks import ignore_stray_slurm, set_matmul_precision
from cli.configuration import build_callbacks, build_data, configure
from cli.given_flags import is_on, overridden
from cli.known_warnings import hide_known_warnings
from cli.loggers import build_loggers, build_profiler
from cli.other_ranks import is_told_elsewhere
from cli.parsing import Configuration, recorded, to_primitive, trainer_arguments
from cli.problems import UsageError, bad_arguments, is_message, tell
from cli.provenance import findable, git_commit, library_versions, start_line, tested_line
from cli.resume import check_same_model, check_same_training
from cli.run_folder import is_rank_zero, prepare_folder, shortest
from cli.stop_signals import StopSignals
from datamodules.contract import check_source, described, part
from datamodules.data_check import check_data, notes_of
from lightning_modules.classifier import Classifier
from lightning_modules.deployed import (
    DESCRIPTION_FORMAT,
    deploy,
    network_class,
    read_checkpoint,
)
from lightning_modules.finite_differences import no_gradient_on_ranks, without_gradient
from lightning_modules.first_batch import check_first_batch
from lightning_modules.first_non_finite import find_first_non_finite
from lightning_modules.losses import build_loss
from lightning_modules.network_signature import build_network, network_arguments
from lightning_modules.unsaved_values import check_everything_is_saved

PROJECT = Path(__file__).resolve().parent
RANK_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


# ---- parts --------------------------------------------------------------------------------


def build_model(configuration: Configuration, data: Any) -> Classifier:
    """The network for this data, inside the module that trains it."""
    arguments = dict(configuration["model"])
    name = arguments.pop("name")
    activation_checkpointing = arguments.pop("checkpoint_activations")
    network = network_class(name, configuration["allow_external_code"])
    of_data = described(data)
    with bad_arguments():
        arguments = to_primitive(network_arguments(network, data.network_arguments(), arguments))
        built = build_network(network, arguments | needless(configuration, arguments))
    part(data, "initialise")(built)
    model = deploy(built, of_data["normalisation"], data.input_spec)
    if of_data["normalisation"]:  # convolutions are faster in this order, on CPUs and tensor cores
        model = model.to(memory_format=torch.channels_last)
    if configuration["compile"]:
        model.compile()  # in place: parameter names stay as they are
    description = {
        "format": DESCRIPTION_FORMAT,
        "network": {"name": name, "arguments": arguments},
        **of_data,
        "versions": library_versions(),
        "git_commit": git_commit(),
        "config": findable(recorded(configuration)),
    }
    external = configuration["allow_external_code"]
    check_everything_is_saved(model, description, data.example_batch, external)
    settings = {group: configuration[group] for group in ("optimizer", "schedule")}
    settings["activation_checkpointing"] = activation_checkpointing
    loss = configuration["loss"] | {"allow_external_code": external}
    with bad_arguments():
        criterion = build_loss(len(data.class_names), data.train_targets, **loss)
        return Classifier(model, criterion, description, **settings)


def build_trainer(
    configuration: Configuration, parts: Mapping[str, pl.Callback], folder: Path | None
) -> pl.Trainer:
    arguments = trainer_arguments(configuration)
    limit = TimeLimit(arguments.pop("max_time"))
    progress = [] if arguments["enable_progress_bar"] is False else [EpochProgress()]
    metrics = MetricsCsv(folder / "metrics.csv" if folder else None)
    always = [SharedSamples(), ExactResume(metrics), limit, EndOfTraining()]
    loggers = build_loggers(configuration, folder) if folder else []
    steps = [StepLog(loggers, configuration["log_every_n_steps"])] if loggers else []
    return pl.Trainer(
        **arguments
        | {
            "enable_progress_bar": bool(progress),
            "enable_model_summary": bool(arguments["enable_model_summary"]),
            "num_sanity_val_steps": arguments["num_sanity_val_steps"] or 0,
        },
        callbacks=[*always, *steps, *parts.values(), *progress],
        logger=[metrics, *loggers] if folder else False,
        profiler=build_profiler(configuration["profiler"], folder),
        plugins=[AtomicCheckpointIO()],
        use_distributed_sampler=False,
        enable_checkpointing=False,  # `Checkpointing` does it, between two steps
        default_root_dir=folder,
        log_every_n_steps=1,
    )


# ---- the job ------------------------------------------------------------------------------


def run(configuration: Configuration, signals: StopSignals, held: ExitStack) -> int:
    """Fit, test and export; returns the exit code. `held` keeps the lock of the run folder."""
    pl.seed_everything(configuration["seed"], workers=True, verbose=False)
    data = build_data(configuration)
    data.prepare_data()
    data.setup("fit")
    check_source(data)
    model = build_model(configuration, data)
    if configuration["replay"]:
        return run_replay(configuration, model, data, configuration["replay"])
    if path := configuration["test_only"] or configuration["resume"]:
        start_from = read_checkpoint(path)
        tests, allowed = bool(configuration["test_only"]), configuration["allow_changes"]
        check_same_model(path, start_from, model, allowed and not tests)
        if tests:
            return run_test_only(configuration, model, data, start_from)
        check_same_training(path, start_from, model.description, data, allowed)
    folder = prepare_folder(configuration, held)
    if is_rank_zero():
        check_data(data, configuration["check_data"], folder)
    notes = notes_of(data, configuration["check_data"])
    said = StartLines(lambda: [*notes, *part(data, "loading")])
    parts = {"said": said, **build_callbacks(configuration)}
    bind_callbacks(parts, configuration, folder, signals)
    trainer = build_trainer(configuration, parts, folder)
    trainer.print(start_line(configuration, model, trainer))
    if folder:
        trainer.print(f"run folder: {folder}")
    check_first_batch(model, data.example_batch(), trainer.strategy)
    try:
        trainer.fit(model, datamodule=data, ckpt_path=configuration["resume"])
    except RuntimeError as error:
        if "find_unused_parameters=True" in str(error):  # DDP's own, which names none
            raise ValueError(no_gradient_on_ranks(without_gradient(model.model))) from None
        steps = parts["non_finite"].failed_between if "non_finite" in parts else None
        if steps is None:
            raise
        signals.act_at_once(None)  # what follows is no training
        if not is_rank_zero():
            return 0  # any other code would make Lightning kill rank 0, which explains it
        explain(steps, trainer, configuration, folder)
        raise
    if configuration["fast_dev_run"]:
        trainer.test(model, datamodule=data, verbose=False)
        return 0
    return test_and_export(trainer, model, data, parts, folder)


def test_and_export(
    trainer: pl.Trainer, model: Classifier, data: Any, parts: Mapping[str, Any], folder: Path | None
) -> int:
    """What follows the fit, with its best checkpoint; returns the exit code."""
    export, checkpoint = parts.get("export"), parts.get("checkpoint")
    best = checkpoint.best_path if checkpoint else None
    try:
        if export:
            export.start(trainer, data, best)
        if trainer.is_global_zero:
            monitor, is_tested = checkpoint and checkpoint.monitor, trainer.limit_test_batches != 0
            print(tested_line(best, monitor, export and export.process, is_tested))
        trainer.test(model, datamodule=data, ckpt_path=best, verbose=False)
        if not trainer.is_global_zero:
            return 0
        code = export.wait() if export else 0
    finally:
        if export:
            export.stop()
    if "wandb" in parts and folder:
        parts["wandb"].upload(folder / "export")
        parts["wandb"].finish()
    print(f"run folder: {folder}")
    return code


def run_test_only(
    configuration: Configuration, model: Classifier, data: Any, checkpoint: Mapping[str, Any]
) -> int:
    """Prints the test report of a checkpoint on the data it was made for."""
    model.load_state_dict(checkpoint["state_dict"])
    parts = build_callbacks(configuration | {"callbacks": []}, ["test_report"])
    trainer = build_trainer(configuration | {"logger": "csv"}, parts, None)
    trainer.test(model, datamodule=data, verbose=False)
    return 0


def explain(
    steps: tuple[int, int], trainer: Any, configuration: Configuration, folder: Path | None
) -> None:
    """Leaves a file that repeats the failing step, and repeats it once to say where it fails."""
    if not (folder and (last := folder / "checkpoints" / "last.ckpt").is_file()):
        return
    path = last.with_name(f"replay-step-{steps[1]}.ckpt")
    replay = {"replay": dict(zip(("first_step", "last_step"), steps, strict=True))}
    AtomicCheckpointIO().save_checkpoint(read_checkpoint(last) | replay, path)
    words = ["--replay", shortest(path).as_posix()]
    words += ["--allow_external_code"] * configuration["allow_external_code"]
    print(f"not finite: repeat it with:\n  python train.py {shlex.join(words)}", flush=True)
    if trainer.world_size == 1:
        data = trainer.datamodule
        run_replay(configuration, build_model(configuration, data), data, str(path))
    elif trainer.num_nodes > 1 or trainer.strategy.launcher is None:
        print("not repeated at once: what started these ranks has to start them again")
    elif configuration["sync_batchnorm"]:  # ranks could wait for one that has found the value
        print("not repeated at once: with SyncBatchNorm it might hang")
    else:  # Lightning started the other ranks, and does so again for a process without a rank
        environment = {k: v for k, v in os.environ.items() if k not in RANK_VARIABLES}
        subprocess.run([sys.executable, PROJECT / "train.py", *words], env=environment, check=False)


def run_replay(configuration: Configuration, model: Classifier, data: Any, path: str) -> int:
    """Goes on from a replay file until the value that is not finite is found again."""
    steps = read_checkpoint(path).get("replay")
    if steps is None:
        raise ValueError(f"--replay {path}: not a replay file (those are named replay-step-N.ckpt)")
    replay = Replay(find_first_non_finite, **steps)
    parts = build_callbacks(configuration, ["unfreeze", "ema"])  # they change the mathematics
    trainer = build_trainer(configuration | {"max_time": None}, parts | {"replay": replay}, None)
    try:
        trainer.fit(model, datamodule=data, ckpt_path=path)
    except Reproduced as found:
        if is_rank_zero():
            print(f"reproduced: {found}")
        return 0
    trainer.print(f"not reproduced: steps {replay.first_step} to {replay.last_step} were finite")
    return 1 if is_rank_zero() else 0


def bind_callbacks(
    parts: Mapping[str, Any],
    configuration: Configuration,
    folder: Path | None,
    signals: StopSignals,
) -> None:
    """Hands callbacks what their flags cannot: the run folder and other parts of the project."""
    for key in {"lr_finder", "test_report", "learning_curves", "wandb"} & parts.keys():
        parts[key].folder = folder
    if "gradient_check" in parts:
        from lightning_modules.finite_differences import check_model

        parts["gradient_check"].bind(folder, check_model)
    if "checkpoint" in parts:
        checkpoints = folder / "checkpoints" if folder else None
        parts["checkpoint"].bind(checkpoints, signals, configuration["checkpoint_every"])
    if "export" in parts:
        from exporters.fit_check import check_export

        external = configuration["allow_external_code"]
        parts["export"].bind(folder, check_export, PROJECT / "export.py", external)


# ---- the process --------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """Runs; turns expected errors into one message and an exit code."""
    hide_known_warnings()
    extra = [word for word in argv if word == "--allow_external_code"]
    with StopSignals(extra) as signals, ExitStack() as held:
        return run_safely(argv, signals, held)


def run_safely(argv: Sequence[str], signals: StopSignals, held: ExitStack) -> int:
    notes, debug = [ignore_stray_slurm()], is_on(argv, "debug")
    try:
        configuration = configure(argv)
        notes += [*overridden(argv), *adapt(configuration), set_matmul_precision(configuration)]
    except (UsageError, ValueError, OSError) as error:
        tell(error, debug)
        return 2
    if is_rank_zero():
        print(*(f"{note}\n" for note in notes if note), sep="", end="")
    try:
        return run(configuration, signals, held)
    except Exception as error:
        if is_told_elsewhere():
            return 1
        if not is_message(error):
            raise
        tell(error, debug)
        return 2 if isinstance(error, UsageError) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
