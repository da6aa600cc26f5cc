"""Which checkpoint `--resume` means: the newest of the right run, or a whole one beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.settings import Setting, read_file
from cli.slurm import jobs_of
from lightning_modules.checkpoint import DamagedCheckpoint, check_whole

NEWEST_FIRST = ("last.ckpt", "previous.ckpt", "best.ckpt")


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
    runs = sorted((run / "checkpoints" for run in folder.glob("*")), reverse=True)
    if job is not None:
        runs = [run for run in runs if job in jobs_of(run.parent)]
    found = [files[0] for run in runs if (files := checkpoints_in(run))]
    if not found:
        raise FileNotFoundError(
            f"--resume auto: no run in {folder} has a checkpoint; leave --resume out to start one"
        )
    for path in found:
        stored = stored_settings(path.parent.parent / "config.yaml")
        if all(same(stored.get(name, value), value) for name, value in wanted.items()):
            return path
    return found[0]


def checkpoints_in(folder: Path) -> list[Path]:
    """Those that are there, the newest first."""
    return [path for name in NEWEST_FIRST if (path := folder / name).is_file()]


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


def wanted_settings(settings: Sequence[Setting]) -> dict[str, str]:
    """What was asked for beside --resume itself, as name -> text."""
    actions = ("resume", "config", "allow_changes", "allow_external_code", "print_config", "debug")
    return {s.name: s.value for s in settings if s.name not in actions}


def whole_checkpoint(path: Path) -> tuple[Path, list[str]]:
    """The checkpoint, or the newest whole one beside it where it is damaged; and what to say.

    Raises:
        DamagedCheckpoint: None in its folder is whole.
    """
    notes: list[str] = []
    for candidate in dict.fromkeys([path, *checkpoints_in(path.parent)]):
        try:
            check_whole(candidate)
        except DamagedCheckpoint as error:
            notes.append(str(error))
            continue
        if notes:
            notes.append(f"going on from {candidate} instead")
        return candidate, notes
    raise DamagedCheckpoint("; ".join(notes))
