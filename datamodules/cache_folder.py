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
from typing import IO

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
    """Holds an exclusive lock on a file, which is gone afterwards; the system releases the lock
    should the process die.
    """
    if os.name != "posix":
        yield
        return
    import fcntl

    while True:
        with path.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not is_same(file, path):  # whoever held it before has taken the file away
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def is_same(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
