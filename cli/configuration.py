"""One configuration out of flags, a YAML file and a checkpoint; every mistake found before work.

Names lead to classes through the packages' dicts, and the classes' constructors say which flags
there are.
"""

import copy
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
from cli.adaptations import adapt, check_strategy_of_frozen, num_processes
from cli.checks import check_machine
from cli.chosen_classes import (
    DEFAULTS,
    class_groups,
    default_experiment,
    own_callbacks,
    show_names,
    without_others,
)
from cli.data_defaults import data_defaults
from cli.given_flags import check_bare, check_purpose, joined
from cli.parsing import (
    Configuration,
    Setting,
    build_parser,
    help_text,
    join,
    judge,
    last_value,
    read_arguments,
    read_file,
    settings_of,
    to_yaml,
    trainer_arguments,
)
from cli.problems import UsageError
from cli.resume import (
    missing_data,
    newest_checkpoint,
    slurm_job,
    unchangeable,
    wanted_settings,
    whole_checkpoint,
)
from cli.run_folder import is_rank_zero
from cli.settings_together import check_recorded, check_together
from datamodules import DATAMODULES
from datamodules.contract import has
from datamodules.samplers import per_rank_batch_size
from lightning_modules.deployed import read_checkpoint, resolve, resolve_class
from lightning_modules.optimizers import build_optimizer
from lightning_modules.schedules import Schedule

# for a Trainer that only judges its arguments; lengths are looked at before
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
         "enable_model_summary": False, "num_sanity_val_steps": 0,
         "max_time": None, "val_check_interval": None}  # fmt: skip


def configure(argv: Sequence[str]) -> Configuration:
    """Flags, over a YAML file, over the configuration of a checkpoint that is resumed or tested.

    Raises:
        UsageError: Everything that is wrong, at once.
        ValueError, FileNotFoundError: The checkpoint cannot be used.
    """
    given = joined(read_arguments(argv), "callbacks")
    check_bare(given)
    given = [*read_files(given), *given]
    show_names(given)
    check_purpose(given)
    checkpoint = last_value(given, "test_only") or last_value(given, "replay")
    checkpoint = checkpoint or resumed_checkpoint(given)
    settings = given
    if checkpoint:
        stored = read_checkpoint(checkpoint)["description"]["config"]
        if refused := [*unchangeable(given, stored, checkpoint), *missing_data(given, stored)]:
            raise UsageError(refused)
        settings = settings_of(stored, str(checkpoint)) + given
    groups, problems = class_groups(settings)
    settings, notes = without_others(settings, groups)
    parser = build_parser(groups, DEFAULTS)
    if last_value(settings, "help"):
        print(help_text(parser), end="")
        raise SystemExit(0)
    # where a name is wrong, its flags cannot be judged
    judged = {group.key for group in groups}
    chosen = DEFAULTS.keys() | dict(own_callbacks(last_value(settings, "callbacks"))).keys()
    settings = [s for s in settings if s.name.partition(".")[0] not in chosen - judged]
    found = judge(parser, settings)
    if found.wrong:
        raise UsageError([*problems, *found.wrong, *found.outside])
    configuration = join(parser, found.fine)
    if not checkpoint and not problems:
        network = next((group.callable for group in groups if group.key == "model"), None)
        asked, lines = data_defaults(network, configuration, {s.name for s in settings})
        if (further := judge(parser, asked)).wrong:
            raise UsageError(further.wrong)
        problems += further.outside
        notes += lines
        configuration = join(parser, found.fine + further.fine)
    machine = check_machine(configuration)
    values = [] if problems else check_values(configuration, with_trainer=not machine)
    problems += [*found.outside, *machine, *values]
    if problems:
        raise UsageError(problems)
    other = configuration["test_only"] or configuration["replay"]
    configuration["resume"] = None if other or not checkpoint else str(checkpoint)
    if configuration["experiment"] is None:
        names = configuration["data"]["name"], configuration["model"]["name"]
        configuration["experiment"] = default_experiment(*names)
    if configuration["print_config"]:
        print(*(f"# {note}\n" for note in notes), to_yaml(configuration), sep="", end="")
        raise SystemExit(0)
    if is_rank_zero():
        print(*(f"{note}\n" for note in notes), sep="", end="")
    return configuration


def read_files(settings: Sequence[Setting]) -> list[Setting]:
    """The settings of all files that --config names, in their order.

    Raises:
        UsageError: What is wrong with any of them.
    """
    found, problems = [], []
    for setting in settings:
        if setting.name == "config":
            try:
                found += read_file(setting.value)
            except UsageError as error:
                problems += error.problems
    if problems:
        raise UsageError(problems)
    return found


def resumed_checkpoint(settings: Sequence[Setting]) -> str | None:
    """The checkpoint that --resume means."""
    wanted = last_value(settings, "resume")
    is_restarted = os.environ.get("SLURM_RESTART_COUNT", "0") != "0"  # put back into the queue
    if wanted == "auto" or (wanted is None and is_restarted):
        data = last_value(settings, "data.name") or DEFAULTS["data"]
        model = last_value(settings, "model.name") or DEFAULTS["model"]
        experiment = last_value(settings, "experiment") or default_experiment(data, model)
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
    if is_rank_zero():
        print(*(f"{note}\n" for note in notes), sep="", end="")
    return str(checkpoint)


def check_values(configuration: Configuration, with_trainer: bool) -> list[str]:
    """Tries every constructor that checks its values and needs no data."""
    trial = copy.deepcopy(configuration)
    if with_trainer:
        adapt(trial)
    dummy = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(dummy.parameters(), lr=0.1)
    attempts: list[Callable[[], Any]] = [
        lambda: build_optimizer(dummy, False, **trial["optimizer"]),
        lambda: Schedule(optimizer, 100, **trial["schedule"]),
        lambda: build_callbacks(trial),
        lambda: check_interval(trial["checkpoint_every"]),
        lambda: check_together(trial),
        lambda: check_recorded(trial),
        lambda: build_data(trial),
        lambda: check_batch_size(trial),
        lambda: check_strategy_of_frozen(trial),
        lambda: check_export_formats(trial),
    ]
    if with_trainer:
        attempts.append(lambda: pl.Trainer(**trainer_arguments(trial) | QUIET))
    problems: list[str] = []
    for attempt in attempts:
        try:
            attempt()
        except UsageError as error:
            problems += error.problems
        except (ValueError, TypeError, ImportError, OSError, MisconfigurationException) as error:
            problems.append(str(error))
    return problems


def check_interval(text: str) -> None:
    """The time between checkpoints, unless the callback that writes them was deleted."""
    if "checkpoint" in CALLBACKS:
        resolve_class(CALLBACKS["checkpoint"])().bind(None, None, text)


def check_export_formats(configuration: Configuration) -> None:
    """The names of formats, unless the callback that exports was deleted or is off."""
    if "export" not in CALLBACKS or not configuration["export"]["enabled"]:
        return
    from exporters.format_choice import check_speed_limit, choose

    settings = configuration["export"]
    try:
        check_speed_limit(choose(settings["formats"]).names, settings["fail_if_slower"])
    except ValueError as error:
        raise ValueError(f"--export.formats {settings['formats']}: {error}") from error


def check_batch_size(configuration: Configuration) -> None:
    if size := configuration["data"].get("batch_size"):
        per_rank_batch_size(size, num_processes(configuration))


def build_data(configuration: Configuration) -> Any:
    """The datamodule; nothing is loaded yet."""
    arguments = dict(configuration["data"])
    name = arguments.pop("name")
    external = configuration["allow_external_code"]
    data_class = resolve_class(DATAMODULES.get(name, name), external)
    data: Any = data_class(**arguments, seed=configuration["seed"])
    if path := arguments.get("transform"):
        if not has(data, "use_transform"):
            raise ValueError(
                f"--data.transform {path}: --data {name} takes none; it needs a method "
                "use_transform(transform)"
            )
        try:
            transform = resolve(path, external)
            data.use_transform(transform() if isinstance(transform, type) else transform)
        except (ValueError, TypeError) as error:
            raise ValueError(f"--data.transform {path}: {error}") from error
    return data


def build_callbacks(
    configuration: Configuration, names: Collection[str] | None = None
) -> dict[str, Any]:
    """The enabled callbacks by name, the user's own last; or some of ours and all of these."""
    own, external = (
        dict(own_callbacks(configuration["callbacks"])),
        configuration["allow_external_code"],
    )
    paths = {key: path for key, path in CALLBACKS.items() if names is None or key in names}
    return {
        key: resolve_class(path, external and key in own)(**configuration.get(key, {}))
        for key, path in (paths | own).items()
        if configuration.get(key, {}).get("enabled", True)
    }
