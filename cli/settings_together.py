"""Checks of several settings against each other, and of all against what a checkpoint holds."""

import re
from collections.abc import Collection
from pathlib import Path

from cli.parsing import Configuration, recorded
from cli.problems import UsageError
from cli.settings import flatten

TIME = re.compile(r"\d+:\d\d:\d\d:\d\d")  # as Lightning reads it


def check_together(configuration: Configuration, callbacks: Collection[str]) -> None:
    """Lengths that are no time, contradict each other or never end, and flags that need another.

    Raises:
        UsageError: All of them.
    """
    problems = [
        f"--{name} must be a time as DD:HH:MM:SS, got {configuration[name]!r}"
        for name in ("max_time", "val_check_interval")
        if isinstance(configuration[name], str) and not TIME.fullmatch(configuration[name])
    ]
    nothing = [
        f"--{name} {configuration[name]}"
        for name in ("max_epochs", "max_steps", "limit_train_batches", "max_time")
        if configuration[name] == 0 or configuration[name] == "00:00:00:00"
    ]
    if nothing and not (configuration["test_only"] or configuration["replay"]):
        problems.append(
            f"{' and '.join(nothing)}: nothing would be trained, so that random weights would be "
            "tested; raise it, leave it out, or test a checkpoint by --test_only CHECKPOINT"
        )
    for unit in ("epochs", "steps"):
        least, most = configuration[f"min_{unit}"], configuration[f"max_{unit}"]
        if least is not None and most is not None and 0 < most < least:
            problems.append(f"--min_{unit} {least} is more than --max_{unit} {most}")
    if configuration["max_epochs"] == -1 and configuration["max_steps"] == -1:
        problems.append(
            "the schedule needs an end: give --max_epochs or --max_steps (--max_time is no end "
            "that it could plan for)"
        )
    if is_outside(configuration["experiment"]):
        problems.append(
            f"--experiment must be a name below --runs_dir, got {configuration['experiment']!r}"
        )
    if configuration["logger"] == "wandb" and "wandb" not in callbacks:
        problems.append("--logger wandb needs callbacks/wandb_report.py, which is not in the table")
    if configuration["gradient_clip_algorithm"] and configuration["gradient_clip_val"] is None:
        problems.append("--gradient_clip_algorithm does nothing without --gradient_clip_val")
    if problems:
        raise UsageError(problems)


def check_recorded(configuration: Configuration) -> None:
    """Refuses what a checkpoint, which holds the configuration, could not hold.

    Raises:
        UsageError: Settings of classes from elsewhere that are no plain values.
    """
    values = flatten(recorded(configuration))
    parts = {name: v if isinstance(v, list) else [v] for name, v in values.items()}
    strange = {
        name: type(part).__name__
        for name, found in parts.items()
        for part in found
        if type(part) not in (bool, int, float, str, type(None), list)
    }
    if strange:
        raise UsageError(
            f"--{name} is of the type {kind}, which a checkpoint does not hold; take its name as "
            "text in a function or class of your own"
            for name, kind in strange.items()
        )


def is_outside(experiment: str | None) -> bool:
    path = Path(experiment or "")
    return path.is_absolute() or ".." in path.parts
