"""What a run that goes on from a checkpoint may change, and what it must not.

A checkpoint holds the whole configuration, so `--resume` needs no other flag. What is changed
nevertheless is shown; what would change the mathematics of the run without another sign is refused
unless --allow_changes says that this is meant.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.utilities import rank_zero_only
from rich.console import Console
from rich.table import Table
from torch import nn

from callbacks.exact_resume import KEY
from cli.resumed_rate import resumed_rate
from cli.settings import Setting, flatten, last_value
from lightning_modules.checkpoint import check_resumable
from lightning_modules.deployed import check_weights
from tasks.base import build_task

# settings and groups that decide where and how something runs or is shown, not what is learnt
WITHOUT_EFFECT = frozenset(
    [
        *("experiment", "runs_dir", "logger", "wandb", "profiler", "check_data", "max_time"),
        *("enable_progress_bar", "enable_model_summary", "checkpoint_every", "export"),
        "log_every_n_steps",
        *("test_report", "learning_curves", "gradient_check", "non_finite", "lr_finder"),
        *("num_sanity_val_steps", "limit_test_batches", "limit_predict_batches"),
        *("inference_mode", "detect_anomaly", "benchmark", "accelerator", "devices"),
        *("num_nodes", "strategy", "data.num_workers", "data.cache_dir", "data.root"),
    ]
)
ROUNDING = dict.fromkeys(
    ("accelerator", "devices", "num_nodes", "strategy"),
    "other rounding; BatchNorm and dropout go by device",
)
LENGTHS = ("max_epochs", "max_steps")
LENGTHLESS = ("constant", "plateau")  # schedules that do not depend on the length of training
BATCHES = ("data.batch_size", "data.batch_tokens", "accumulate_grad_batches")
SMALL_JUMP = 0.01  # share of the rate; a step changes it by less
UNCHANGEABLE = ("model.name", "data.name", "optimizer.name", "module.name")
Changed = Mapping[str, tuple[Any, Any]]  # setting -> before and now


def unchangeable(given: Sequence[Setting], stored: Mapping[str, Any], checkpoint: str) -> list[str]:
    """What of the given settings would make another run of a checkpoint's, one line each."""
    before, problems = flatten(stored), []
    for name in UNCHANGEABLE:
        wanted, group = last_value(given, name), name.partition(".")[0]
        if wanted is not None and wanted != before.get(name, wanted):
            problems.append(
                f"--{group} {wanted}: {checkpoint} is of --{group} {before[name]}, which cannot be "
                f"changed any more; leave --{group} out, or start a new run without the checkpoint"
            )
    return problems


def missing_data(given: Sequence[Setting], stored: Mapping[str, Any]) -> list[str]:
    """Where a checkpoint's data has moved: both places that it was looked for in."""
    root = flatten(stored).get("data.root")
    is_given = any(setting.name == "data.root" for setting in given)
    if is_given or not isinstance(root, str) or "://" in root or Path(root).exists():
        return []
    return [
        f"the run was trained on --data.root {root}, and there is nothing now (started in "
        f"{Path.cwd()}): give --data.root, or start where the data lies"
    ]


def check_same_model(
    path: str,
    checkpoint: Mapping[str, Any],
    model: nn.Module,
    description: Mapping[str, Any],
    allow_changes: bool,
) -> None:
    """Refuses a checkpoint of another network, other classes or weights than this run's, or that
    learned from inputs that were made in another way.

    Args:
        description: Of this run.
        allow_changes: Training may go on with other inputs.

    Raises:
        ValueError: What differs.
    """
    stored = checkpoint["description"]
    facts = [(d["network"], *task_of(d)) for d in (stored, description)]
    for name, before, now in zip(("network", "task", "targets"), *facts, strict=True):
        if before != now:
            raise ValueError(f"{path} was trained with {name} {before}, but this run has {now}")
    check_weights(model, checkpoint["state_dict"], stored["network"]["name"])
    if (changed := other_inputs(stored, description)) and not allow_changes:
        raise ValueError(
            f"{path} learned from inputs that were made in another way than this data gives now: "
            f"{'; '.join(changed)}; give the data and the --data flags that it was trained with"
        )


def task_of(description: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and plain values."""
    task = build_task(description)
    return task.name, task.values


def other_inputs(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """How a file becomes an input, where two descriptions differ in it: key, before and now."""
    before, after = stored["preprocessing"], now["preprocessing"]
    changed = [
        f"{key} was {before.get(key)}, is {after.get(key)}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]
    files = [name for name in now["files"] if stored["files"].get(name) != now["files"][name]]
    return changed + [f"{name} holds something else" for name in files]


def check_same_training(
    path: str,
    checkpoint: Mapping[str, Any],
    description: Mapping[str, Any],
    data: Any,
    allow_changes: bool,
) -> None:
    """Shows what a run that goes on from a checkpoint changes, and refuses other data.

    Args:
        data: The datamodule of this run.

    Raises:
        ValueError: Something changes what is learnt, and that was not allowed.
    """
    check_resumable(path, checkpoint)
    stored, config = checkpoint["description"], description["config"]
    changed = changed_settings(stored["config"], config)
    check_place(path, checkpoint.get(KEY) or {}, changed)
    if changed:
        rates = resumed_rate(checkpoint, config, data.train_dataloader())
        console = Console(quiet=rank_zero_only.rank != 0)  # type: ignore[attr-defined]
        check_changes(changed, config["schedule"], allow_changes, console, rates)
    if stored["fingerprint"] != description["fingerprint"] and not allow_changes:
        raise ValueError(
            f"{path} was trained on other data than {config['data']['name']} gives "
            "now (their fingerprints differ); add --allow_changes if that is meant"
        )


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> Changed:
    """Settings of two configurations that differ."""
    old, new = flatten(before), flatten(now)
    return {n: (old[n], new[n]) for n in new if n in old and old[n] != new[n]}


def check_place(path: str, place: Mapping[str, Any], changed: Changed) -> None:
    """Refuses other batches in mid-epoch where a checkpoint counts the batches alone.

    Raises:
        ValueError: It is one of an earlier version.
    """
    batches = [f"--{name}" for name in BATCHES if name in changed]
    if batches and place.get("position") and "samples" not in place:
        raise ValueError(
            f"{path} was written by an earlier version, and within an epoch that goes on only with "
            f"the same batches: leave {', '.join(batches)} as before, or start a new run"
        )


def check_changes(
    changed: Changed,
    schedule: Mapping[str, Any],
    allow_changes: bool,
    console: Console,
    rates: tuple[float, float] | None = None,
) -> None:
    """Shows what a resumed run changes.

    Args:
        changed: Settings, before and now.
        schedule: Its settings now.
        rates: The learning rate of the next step, before and now.

    Raises:
        ValueError: Something changes what is learnt, and that was not allowed.
    """
    is_lengthless = schedule["name"] in LENGTHLESS and not schedule["warmup"]
    neutral = WITHOUT_EFFECT.union(LENGTHS if is_lengthless else ())
    effective = [name for name in changed if not {name, name.partition(".")[0]} & neutral]
    effects = dict.fromkeys(changed, "none on what is learnt")
    effects |= dict.fromkeys(effective, "changes the training")
    if effective and rates and abs(rates[1] - rates[0]) > SMALL_JUMP * rates[0]:
        cause = next((name for name in LENGTHS if name in effective), effective[0])
        effects[cause] += f"; the rate jumps from {rates[0]:.2e} to {rates[1]:.2e}"
    table = Table(title="changed on resume", title_justify="left", box=None, pad_edge=False)
    for column in ("setting", "before", "now", "effect"):
        table.add_column(column)
    for name, (was, value) in changed.items():
        table.add_row(name, str(was), str(value), ROUNDING.get(name, effects[name]))
    console.print(table)
    if effective and not allow_changes:
        raise ValueError(
            f"resuming with another {', '.join(effective)} would not be the same training; add "
            "--allow_changes if that is meant, or leave the change out"
        )
