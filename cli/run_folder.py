"""One folder a run: made once by rank 0, never overwritten, found by the other ranks."""

import os
import secrets
import time
from contextlib import ExitStack
from pathlib import Path

from pytorch_lightning.utilities import rank_zero_only

from cli.parsing import Configuration, to_yaml
from cli.resume import lock_run_folder, note_job

ENVIRONMENT_NAME = "FOUNDRY_RUN_FOLDER"


def create_run_folder(runs_dir: str, experiment: str) -> Path | None:
    """Makes runs/<experiment>/<time>-<id>.

    Processes that Lightning starts inherit the place by environment; under torchrun or SLURM,
    where all ranks start at once, ranks other than 0 get None and learn it with the first
    broadcast.

    Raises:
        OSError: The folder cannot be made.
    """
    if not is_rank_zero():
        inherited = os.environ.get(ENVIRONMENT_NAME)
        return Path(inherited) if inherited else None
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    folder = Path(runs_dir) / experiment / f"{stamp}-{secrets.token_hex(2)}"
    try:
        (folder / "checkpoints").mkdir(parents=True)
    except OSError as error:
        raise OSError(
            f"cannot make the run folder {folder}: {error.strerror}; choose another place by "
            "--runs_dir"
        ) from error
    os.environ[ENVIRONMENT_NAME] = str(folder)
    return folder


def prepare_folder(configuration: Configuration, held: ExitStack) -> Path | None:
    """The run folder, with the configuration inside; a resumed run goes on in its own.

    Args:
        held: Gives the lock of the folder back when it closes.

    Raises:
        ValueError: Another process works in the folder.
        OSError: The folder cannot be made or written in.
    """
    if configuration["fast_dev_run"]:
        return None
    folder = None
    if configuration["resume"]:
        resumed = Path(configuration["resume"]).resolve().parent.parent
        # a checkpoint that was taken out of its run starts a new folder
        folder = resumed if (resumed / "config.yaml").is_file() else None
    folder = folder or create_run_folder(configuration["runs_dir"], configuration["experiment"])
    if folder and is_rank_zero():
        try:
            held.callback(os.close, lock_run_folder(folder))
            note_job(folder)
            (folder / "config.yaml").write_text(to_yaml(configuration), encoding="utf-8")
        except OSError as error:
            raise OSError(
                f"cannot write in the run folder {folder}: {error.strerror}; copy it to where that "
                "is possible, and resume the checkpoint there"
            ) from error
    return folder


def is_rank_zero() -> bool:
    """Known from the environment, before there is a Trainer."""
    return rank_zero_only.rank == 0  # type: ignore[attr-defined]


def shortest(path: Path) -> Path:
    """Relative where it lies below the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
