"""One configuration out of flags, a YAML file and a checkpoint; every mistake found before work.

Names lead to classes through the packages' dicts, and the classes' constructors say which flags
there are.
"""

import copy
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from jsonargparse import ArgumentParser
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from torch import nn

from cli.adaptations import adapt, check_strategy_of_frozen, num_processes
from cli.building import CallbackTable, build_callbacks, build_data, callbacks_of
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
from cli.newest_checkpoint import newest_checkpoint, wanted_settings, whole_checkpoint
from cli.own_module import not_asked_for
from cli.parsing import (
    Configuration,
    Judged,
    build_parser,
    help_text,
    join,
    judge,
    to_yaml,
    trainer_arguments,
)
from cli.problems import UsageError
from cli.ranks import say
from cli.resume import missing_data, of_this_version, unchangeable
from cli.run import Run
from cli.settings import (
    Setting,
    check_given,
    flatten,
    joined,
    last_value,
    overridden,
    read_arguments,
    read_files,
    settings_of,
)
from cli.settings_together import check_recorded, check_together
from cli.slurm import ignore_stray_slurm, slurm_job
from datamodules.order import per_rank_batch_size
from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.optimizers import build_optimizer
from lightning_modules.schedules import Schedule

# for a Trainer that only judges its arguments; lengths are looked at before
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
         "enable_model_summary": False, "num_sanity_val_steps": 0,
         "max_time": None, "val_check_interval": None}  # fmt: skip


def configure(argv: Sequence[str], table: CallbackTable) -> Configuration:
    """Flags, over a YAML file, over the configuration of a checkpoint that is resumed or tested.

    Args:
        argv: The command line.
        table: The callbacks that have flags.

    Raises:
        UsageError: Everything that is wrong, at once.
        ValueError, FileNotFoundError: The checkpoint cannot be used.
    """
    stray_slurm = ignore_stray_slurm()
    given = given_settings(argv)
    stored, checkpoint = stored_settings(given)
    settings = stored + given
    groups, problems = class_groups(settings, table)
    settings, notes = without_others(settings, groups)
    parser = build_parser(groups, DEFAULTS)
    if last_value(settings, "help"):
        print(help_text(parser), end="")
        raise SystemExit(0)
    # where a name is wrong, its flags cannot be judged
    classes = {group.key: group.callable for group in groups}
    chosen = DEFAULTS.keys() | dict(own_callbacks(last_value(settings, "callbacks"))).keys()
    settings = [s for s in settings if s.name.partition(".")[0] not in chosen - classes.keys()]
    found = judge(parser, settings)
    if found.wrong:
        raise UsageError([*problems, *found.wrong, *found.outside])
    if not checkpoint and not problems:
        notes += take_data_defaults(parser, found, classes["model"])
    configuration = join(parser, found.fine)
    if "module" in classes:
        wanted, usual = flatten(configuration), flatten(join(parser, []))
        changed = [s.name for s in given if wanted.get(s.name) != usual.get(s.name)]
        notes += not_asked_for(classes["module"], changed)
    machine = check_machine(configuration)
    values = [] if problems else check_values(configuration, table, with_trainer=not machine)
    problems += [*found.outside, *machine, *values]
    if problems:
        raise UsageError(problems)
    other = configuration["test_only"] or configuration["replay"]
    configuration["resume"] = None if other else checkpoint
    if configuration["experiment"] is None:
        names = configuration["data"]["name"], configuration["model"]["name"]
        configuration["experiment"] = default_experiment(*names)
    if configuration["print_config"]:
        print(*(f"# {note}\n" for note in notes), to_yaml(configuration), sep="", end="")
        raise SystemExit(0)
    say(*notes, stray_slurm, *overridden(argv))
    return configuration


def given_settings(argv: Sequence[str]) -> list[Setting]:
    """Those of the files that --config names, then those of the command line.

    Raises:
        UsageError: What cannot be read, or is asked for twice over.
        SystemExit: Names were asked for, and shown.
    """
    given = joined(read_arguments(argv), "callbacks")
    check_given(given)
    given = [*read_files(given), *given]
    show_names(given)
    check_given(given)
    return given


def stored_settings(given: Sequence[Setting]) -> tuple[list[Setting], str | None]:
    """Those of the checkpoint that is resumed, tested or replayed, and which one that is.

    Raises:
        UsageError: What was given would make another run of it.
    """
    checkpoint = last_value(given, "test_only") or last_value(given, "replay")
    checkpoint = checkpoint or resumed_checkpoint(given)
    if not checkpoint:
        return [], None
    stored = of_this_version(read_checkpoint(checkpoint)["description"]["config"])
    if refused := [*unchangeable(given, stored, checkpoint), *missing_data(given, stored)]:
        raise UsageError(refused)
    return settings_of(stored, checkpoint), checkpoint


def take_data_defaults(parser: ArgumentParser, found: Judged, network: Any) -> list[str]:
    """Adds what the network asks of its data to what was found; returns what to say of it.

    Raises:
        UsageError: It asks for what no such data takes.
    """
    given = {setting.name for setting in found.fine}
    asked, lines = data_defaults(network, join(parser, found.fine), given)
    if (further := judge(parser, asked)).wrong:
        raise UsageError(further.wrong)
    found.fine.extend(further.fine)
    found.outside.extend(further.outside)
    return lines


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
    say(*notes)
    return str(checkpoint)


def check_values(
    configuration: Configuration, table: CallbackTable, with_trainer: bool
) -> list[str]:
    """Tries every constructor that checks its values and needs no data."""
    trial = copy.deepcopy(configuration)
    if with_trainer:
        adapt(trial)
    dummy = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(dummy.parameters(), lr=0.1)
    attempts: list[Callable[[], Any]] = [
        lambda: build_optimizer(dummy, False, **trial["optimizer"]),
        lambda: Schedule(optimizer, 100, **trial["schedule"]),
        *(partial(callbacks_of, trial, {key: table[key]}, Run()) for key in table),
        lambda: build_callbacks(trial, {}, Run()),
        lambda: check_together(trial, table),
        lambda: check_recorded(trial),
        lambda: build_data(trial),
        lambda: check_batch_size(trial),
        lambda: check_strategy_of_frozen(trial),
        lambda: check_export_formats(trial, table),
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


def check_export_formats(configuration: Configuration, table: CallbackTable) -> None:
    """The names of formats and the user's translations, unless nothing is exported."""
    if "export" not in table or not configuration["export"]["enabled"]:
        return
    from cli.translations import own_translations
    from exporters.format_choice import check_speed_limit, choose

    settings = configuration["export"]
    try:
        check_speed_limit(choose(settings["formats"]).names, settings["fail_if_slower"])
    except ValueError as error:
        raise ValueError(f"--export.formats {settings['formats']}: {error}") from error
    try:
        own_translations(settings["onnx_translations"], configuration["allow_external_code"])
    except ValueError as error:
        raise ValueError(f"--export.{error}") from error


def check_batch_size(configuration: Configuration) -> None:
    if size := configuration["data"].get("batch_size"):
        per_rank_batch_size(size, num_processes(configuration))
