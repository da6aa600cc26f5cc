"""One configuration out of flags, a YAML file and a checkpoint; every mistake found before work.

Names lead to classes through the packages' dicts, and the classes' constructors say which flags
there are.
"""

import inspect
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from torch import nn

from callbacks import CALLBACKS
from cli.checks import check_machine
from cli.parsing import (
    ClassGroup,
    Configuration,
    Setting,
    build_parser,
    last_value,
    parse,
    read_arguments,
    read_file,
    settings_of,
    to_yaml,
    trainer_arguments,
)
from cli.problems import UsageError, did_you_mean
from cli.resume import newest_checkpoint, slurm_job, wanted_settings, whole_checkpoint
from datamodules import DATAMODULES
from datamodules.samplers import per_rank_batch_size
from lightning_modules.deployed import DATA_DETERMINED, read_checkpoint, resolve_class
from lightning_modules.losses import ClassificationLoss
from lightning_modules.networks import NETWORKS
from lightning_modules.optimizers import build_optimizer
from lightning_modules.schedules import Schedule

# for a Trainer that only judges its arguments; precision may yet be adapted to the CPU
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
         "enable_model_summary": False, "num_sanity_val_steps": 0, "precision": None}  # fmt: skip
DEFAULTS = {"model": "small_cnn", "data": "digits"}


def configure(argv: Sequence[str]) -> Configuration:
    """Flags, over a YAML file, over the configuration of a checkpoint that is resumed or tested.

    Raises:
        UsageError: Everything that is wrong, at once.
        ValueError, FileNotFoundError: The checkpoint cannot be used.
    """
    settings = read_arguments(argv)
    config_file = last_value(settings, "config")
    if config_file:
        settings = read_file(config_file) + settings
    checkpoint = last_value(settings, "test_only") or last_value(settings, "replay")
    checkpoint = checkpoint or resumed_checkpoint(settings)
    if checkpoint:
        stored = read_checkpoint(checkpoint)["description"]["config"]
        settings = settings_of(stored, str(checkpoint)) + settings
    groups, problems = class_groups(settings)
    settings += preprocessing_of_weights(settings, groups)
    parser = build_parser(groups, DEFAULTS)
    if last_value(settings, "help"):
        parser.print_help()
        raise SystemExit(0)
    # where a name is wrong, its flags cannot be judged
    judged = {group.key for group in groups}
    settings = [s for s in settings if s.name.partition(".")[0] not in DEFAULTS.keys() - judged]
    try:
        configuration = parse(parser, settings)
    except UsageError as error:
        raise UsageError(problems + error.problems) from None
    problems += check_machine(configuration)
    problems += [] if problems else check_values(configuration)
    if problems:
        raise UsageError(problems)
    other = configuration["test_only"] or configuration["replay"]
    configuration["resume"] = None if other or not checkpoint else str(checkpoint)
    if configuration["experiment"] is None:
        names = (configuration["data"]["name"], configuration["model"]["name"])
        configuration["experiment"] = "-".join(name.rpartition(".")[2] for name in names)
    if configuration["print_config"]:
        print(to_yaml(configuration), end="")
        raise SystemExit(0)
    return configuration


def resumed_checkpoint(settings: Sequence[Setting]) -> str | None:
    """The checkpoint that --resume means."""
    wanted = last_value(settings, "resume")
    is_restarted = os.environ.get("SLURM_RESTART_COUNT", "0") != "0"  # put back into the queue
    if wanted == "auto" or (wanted is None and is_restarted):
        data = last_value(settings, "data.name", DEFAULTS["data"])
        model = last_value(settings, "model.name", DEFAULTS["model"])
        experiment = last_value(settings, "experiment") or f"{data}-{model}"
        runs_dir = last_value(settings, "runs_dir") or "runs"
        found, given = None, wanted_settings(settings)
        if is_restarted:  # its own run, whatever others have begun since
            with suppress(FileNotFoundError):
                found = newest_checkpoint(runs_dir, experiment, given, slurm_job())
        if found is None and wanted is None:
            return None  # the job was stopped before its first checkpoint
        found = found or newest_checkpoint(runs_dir, experiment, given)
        wanted = str(found)
    if wanted is None or not Path(wanted).is_file():
        return wanted
    checkpoint, notes = whole_checkpoint(Path(wanted))
    print(*(f"{note}\n" for note in notes), sep="", end="")
    return str(checkpoint)


def preprocessing_of_weights(
    settings: Sequence[Setting], groups: Sequence[ClassGroup]
) -> list[Setting]:
    """Pretrained torchvision weights also say how to prepare pictures, unless that was given."""
    weights = last_value(settings, "model.weights") or ""
    is_given = any(setting.name == "data.weights" for setting in settings)
    takes_them = any(
        group.key == "data" and "weights" in inspect.signature(group.callable).parameters
        for group in groups
    )
    if "_Weights." not in weights or is_given or not takes_them:
        return []
    return [Setting("data.weights", weights, "")]


def class_groups(settings: Sequence[Setting]) -> tuple[list[ClassGroup], list[str]]:
    """The classes whose constructors give flags, and what is wrong with the chosen names."""
    external = last_value(settings, "allow_external_code") == "true"
    groups, problems = [], []
    choices: dict[str, tuple[dict[str, str], frozenset[str]]] = {
        "model": (NETWORKS, DATA_DETERMINED),
        "data": (DATAMODULES, frozenset({"seed"})),
    }
    for key, (table, skip) in choices.items():
        name = last_value(settings, f"{key}.name") or DEFAULTS[key]
        if name not in table and "." not in name:
            near = did_you_mean(name, table)
            problems.append(f"--{key} {name} is unknown{near} (available: {', '.join(table)})")
            continue
        try:
            found = resolve_class(table.get(name, name), external)
        except ValueError as error:
            problems.append(f"--{key}: {error}")
            continue
        groups.append(ClassGroup(key, f"{key.title()} {name} (--{key} NAME)", found, skip))
    from_data = frozenset({"num_classes", "train_targets"})
    groups += [
        ClassGroup("optimizer", "Optimizer", build_optimizer, frozenset({"module", "fused"})),
        ClassGroup("schedule", "Schedule", Schedule, frozenset({"optimizer", "total_steps"})),
        ClassGroup("loss", "Loss", ClassificationLoss, from_data),
    ]
    for key, path in CALLBACKS.items():
        title = f"Callback {key.replace('_', ' ')}"
        groups.append(ClassGroup(key, title, resolve_class(path), frozenset()))
    return groups, problems


def check_values(configuration: Configuration) -> list[str]:
    """Tries every constructor that checks its values and needs no data."""
    dummy = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(dummy.parameters(), lr=0.1)
    attempts: list[Callable[[], Any]] = [
        lambda: build_optimizer(dummy, False, **configuration["optimizer"]),
        lambda: Schedule(optimizer, 100, **configuration["schedule"]),
        lambda: build_callbacks(configuration),
        lambda: check_interval(configuration["checkpoint_every"]),
        lambda: build_data(configuration),
        lambda: check_batch_size(configuration),
        lambda: check_numbers(configuration),
        lambda: pl.Trainer(**trainer_arguments(configuration) | QUIET),
    ]
    problems = []
    for attempt in attempts:
        try:
            attempt()
        except (ValueError, TypeError, ImportError, OSError, MisconfigurationException) as error:
            problems.append(str(error))
    return problems


def check_interval(text: str) -> None:
    """The time between checkpoints, unless the callback that writes them was deleted."""
    if "checkpoint" in CALLBACKS:
        resolve_class(CALLBACKS["checkpoint"])().bind(None, None, text)


def check_numbers(configuration: Configuration) -> None:
    """What Lightning would only notice later."""
    if not 0 <= configuration["seed"] < 2**32:
        raise ValueError(f"--seed must be 0 to {2**32 - 1}, got {configuration['seed']}")
    steps = configuration["accumulate_grad_batches"]
    if steps < 1:
        raise ValueError(f"--accumulate_grad_batches must be at least 1, got {steps}")


def check_batch_size(configuration: Configuration) -> None:
    devices = configuration["devices"]
    count = len(devices) if isinstance(devices, list) else devices
    if isinstance(count, int) and count > 0 and configuration["data"].get("batch_size"):
        per_rank_batch_size(configuration["data"]["batch_size"], count * configuration["num_nodes"])


def build_data(configuration: Configuration) -> Any:
    """The datamodule; nothing is loaded yet."""
    arguments = dict(configuration["data"])
    name = arguments.pop("name")
    data_class = resolve_class(DATAMODULES.get(name, name), configuration["allow_external_code"])
    return data_class(**arguments, seed=configuration["seed"])


def build_callbacks(
    configuration: Configuration, names: Collection[str] = CALLBACKS
) -> dict[str, Any]:
    """The enabled callbacks by name, or some of them."""
    return {
        key: resolve_class(path)(**configuration[key])
        for key, path in CALLBACKS.items()
        if key in names and configuration[key]["enabled"]
    }
