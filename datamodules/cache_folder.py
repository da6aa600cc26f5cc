"""Folders that are built once and then only read: decoded pixels, unpacked archives, downloads.

Safe with several processes at once (ranks, runs): one builds under a lock, the others wait; a
folder appears under its final name only when it is whole. Anything in the cache may be deleted.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER_NAME = "lightning-foundry"


def cache_folder(chosen: str | None) -> Path:
    """`--data.cache_dir`, or `lightning-foundry` in the user's cache folder.

    Raises:
        ValueError: It cannot be written.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(chosen) if chosen else Path(home) / FOLDER_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write the cache folder {folder} ({error.strerror}); "
            "choose another by --data.cache_dir"
        ) from error
    return folder


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Returns `folder`, having let `build` fill it if it is not there yet.

    Args:
        folder: Final place.
        build: Fills the empty folder it is given; when it raises, nothing is left behind.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")):
        if folder.is_dir():  # another process was faster
            return folder
        for remains in folder.parent.glob(f".{folder.name}-*"):  # of a killed process
            shutil.rmtree(remains, ignore_errors=True)
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
        try:
            build(unfinished)
            os.replace(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file; the system releases it should the process die."""
    with path.open("w", encoding="utf-8") as file:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
