"""Which checkpoint a resumed run goes on from, and what its configuration may change.

A checkpoint holds the whole configuration, so `--resume` needs no other flag. What is changed
nevertheless is shown; what would change the mathematics of the run without another sign is refused
unless --allow_changes says that this is meant.
"""

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.utilities import rank_zero_only
from rich.console import Console
from rich.table import Table

from callbacks.exact_resume import KEY
from cli.parsing import Setting, flatten, last_value, read_file
from cli.resumed_rate import resumed_rate
from lightning_modules.deployed import check_weights, misplaced

NEWEST_FIRST = ("last.ckpt", "previous.ckpt", "best.ckpt")
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
LENGTHS = ("max_epochs", "max_steps")
LENGTHLESS = ("constant", "plateau")  # schedules that do not depend on the length of training
# what Lightning and this project look up in a checkpoint that training goes on from
RESUMABLE = {
    "pytorch-lightning_version": str,
    "epoch": int,
    "global_step": int,
    "loops": {"fit_loop": dict},
    "callbacks": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
    "description": {"fingerprint": str},
}
BATCHES = ("data.batch_size", "data.batch_tokens", "accumulate_grad_batches")
SMALL_JUMP = 0.01  # share of the rate; a step changes it by less
UNCHANGEABLE = ("model.name", "data.name", "optimizer.name")


JOBS = "slurm_jobs"  # in a run folder: the jobs that have worked in it, one a line


def slurm_job() -> str | None:
    """This SLURM job, by which it is put back into the queue: JOB, or ARRAY_TASK."""
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID', '0')}"
    return os.environ.get("SLURM_JOB_ID")


def note_job(run: Path) -> None:
    """Writes down that this job has worked in a run folder."""
    job = slurm_job()
    if job is not None and job not in jobs_of(run):
        with (run / JOBS).open("a", encoding="utf-8") as file:
            file.write(f"{job}\n")


def jobs_of(run: Path) -> list[str]:
    """The jobs that have worked in a run folder."""
    path = run / JOBS
    return path.read_text(encoding="utf-8").split() if path.is_file() else []


class DamagedCheckpoint(ValueError):
    """A checkpoint file is not whole."""


def check_whole(path: str | Path) -> None:
    """Compares everything in a checkpoint file with the checksums it was written with.

    Raises:
        DamagedCheckpoint: It is cut off or changed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except Exception as error:  # changed bytes can fail anywhere in the reader
        raise DamagedCheckpoint(f"{path} is damaged: {error!r}") from error
    if broken is not None:
        raise DamagedCheckpoint(f"{path} is damaged: {broken} in it was changed")


def whole_checkpoint(path: Path) -> tuple[Path, list[str]]:
    """The checkpoint, or the newest whole one beside it where it is damaged; and what to say.

    Raises:
        DamagedCheckpoint: None in its folder is whole.
    """
    siblings = [path.parent / name for name in NEWEST_FIRST]
    others = [other for other in siblings if other != path and other.is_file()]
    notes: list[str] = []
    for candidate in [path, *others]:
        try:
            check_whole(candidate)
        except DamagedCheckpoint as error:
            notes.append(str(error))
            continue
        if notes:
            notes.append(f"going on from {candidate} instead")
        return candidate, notes
    raise DamagedCheckpoint("; ".join(notes))


def newest_checkpoint(
    runs_dir: str, experiment: str, wanted: Mapping[str, str], job: str | None = None
) -> Path:
    """The newest checkpoint of the experiment's newest run that was started with these settings.

    Where no run has them all, the newest run's: `check_changes` then says what differs.

    Args:
        wanted: Setting -> value as text, those that were given.
        job: Only runs in which this SLURM job has worked count.

    Raises:
        FileNotFoundError: No run has a checkpoint.
    """
    folder = Path(runs_dir, experiment)
    runs = sorted((path for path in folder.glob("*") if path.is_dir()), reverse=True)
    if job is not None:
        runs = [run for run in runs if job in jobs_of(run)]
    found = []
    for run in runs:
        files = [run / "checkpoints" / name for name in NEWEST_FIRST]
        found += [path for path in files if path.is_file()][:1]
    if not found:
        raise FileNotFoundError(
            f"--resume auto: no run in {folder} has a checkpoint; leave --resume out to start one"
        )
    for path in found:
        stored = stored_settings(path.parent.parent / "config.yaml")
        if all(same(stored.get(name, value), value) for name, value in wanted.items()):
            return path
    return found[0]


def same(one: str, other: str) -> bool:
    """Whether two values mean the same, however a number is written."""
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return False


def stored_settings(path: Path) -> dict[str, str]:
    """The settings of a run's config.yaml as text."""
    if not path.is_file():
        return {}
    return {setting.name: setting.value for setting in read_file(str(path))}


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
    path: str, checkpoint: Mapping[str, Any], model: Any, allow_changes: bool
) -> None:
    """Refuses a checkpoint of another network, other classes or weights than this run's, or that
    learned from inputs that were made in another way.

    Args:
        allow_changes: Training may go on with other inputs.

    Raises:
        ValueError: What differs.
    """
    stored, description = checkpoint["description"], model.description
    for key, name in (("network", "network"), ("class_names", "classes")):
        if stored[key] != description[key]:
            raise ValueError(
                f"{path} was trained with {name} {stored[key]}, but this run has {description[key]}"
            )
    check_weights(model, checkpoint["state_dict"], stored["network"]["name"])
    if (changed := other_inputs(stored, description)) and not allow_changes:
        raise ValueError(
            f"{path} learned from inputs that were made in another way than this data gives now: "
            f"{'; '.join(changed)}; give the data and the --data flags that it was trained with"
        )


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
    if wrong := misplaced(checkpoint, RESUMABLE):
        raise ValueError(
            f"{path} cannot be gone on from: missing or of another type is {', '.join(wrong)}"
        )
    stored, config = checkpoint["description"], description["config"]
    check_place(path, checkpoint.get(KEY) or {}, stored["config"], config)
    rates = None
    if config != stored["config"]:
        rates = resumed_rate(checkpoint, config, data.train_dataloader())
    console = Console(quiet=rank_zero_only.rank != 0)  # type: ignore[attr-defined]
    check_changes(stored["config"], config, allow_changes, console, rates)
    if stored["fingerprint"] != description["fingerprint"] and not allow_changes:
        raise ValueError(
            f"{path} was trained on other data than {config['data']['name']} gives "
            "now (their fingerprints differ); add --allow_changes if that is meant"
        )


def check_place(
    path: str, place: Mapping[str, Any], before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Refuses other batches in mid-epoch where a checkpoint counts the batches alone.

    Raises:
        ValueError: It is one of an earlier version.
    """
    old, new = flatten(before), flatten(now)
    changed = [f"--{name}" for name in BATCHES if old.get(name) != new.get(name)]
    if changed and place.get("position") and "samples" not in place:
        raise ValueError(
            f"{path} was written by an earlier version, and within an epoch that goes on only with "
            f"the same batches: leave {', '.join(changed)} as before, or start a new run"
        )


def check_changes(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    allow_changes: bool,
    console: Console,
    rates: tuple[float, float] | None = None,
) -> None:
    """Shows what a resumed run changes.

    Args:
        before: The checkpoint's configuration.
        now: This run's.
        rates: The learning rate of the next step, before and now.

    Raises:
        ValueError: Something changes what is learnt, and that was not allowed or cannot be.
    """
    old, new = flatten(before), flatten(now)
    changed = {n: (old[n], new[n]) for n in new if n in old and old[n] != new[n]}
    if not changed:
        return
    table = Table(title="changed on resume", title_justify="left", box=None, pad_edge=False)
    for column in ("setting", "before", "now", "effect"):
        table.add_column(column)
    is_lengthless = new["schedule.name"] in LENGTHLESS and not new["schedule.warmup"]
    neutral = WITHOUT_EFFECT.union(LENGTHS if is_lengthless else ())
    effective = [name for name in changed if not {name, name.partition(".")[0]} & neutral]
    jumps = rates is not None and abs(rates[1] - rates[0]) > SMALL_JUMP * rates[0]
    causes = [*(name for name in LENGTHS if name in effective), *effective]
    cause = causes[0] if jumps and causes else None
    for name, (was, value) in changed.items():
        effect = "changes the training" if name in effective else "none on what is learnt"
        if name == cause and rates is not None:
            effect += f"; the rate jumps from {rates[0]:.2e} to {rates[1]:.2e}"
        if name in ("accelerator", "devices", "num_nodes", "strategy"):
            effect = "other rounding; BatchNorm and dropout go by device"
        table.add_row(name, str(was), str(value), effect)
    console.print(table)
    refused = [name for name in changed if name in UNCHANGEABLE]
    if refused:
        raise ValueError(f"a resumed run cannot change {', '.join(refused)}: start a new one")
    if effective and not allow_changes:
        raise ValueError(
            f"resuming with another {', '.join(effective)} would not be the same training; add "
            "--allow_changes if that is meant, or leave the change out"
        )


def lock_run_folder(folder: Path) -> int:
    """Makes this process the only one that works in a run folder, until it ends.

    Returns:
        The descriptor that holds the lock.

    Raises:
        ValueError: Another process does.
    """
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        import fcntl
    except ImportError:  # Windows
        return descriptor
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        message = f"another process is training in {folder}; wait for it or stop it"
        raise ValueError(message) from error
    except OSError:  # a file system without locks: nothing to refuse by
        pass
    return descriptor


def wanted_settings(settings: Sequence[Setting]) -> dict[str, str]:
    """What was asked for beside --resume itself, as name -> text."""
    actions = ("resume", "config", "allow_changes", "allow_external_code", "print_config", "debug")
    return {s.name: s.value for s in settings if s.name not in actions}
