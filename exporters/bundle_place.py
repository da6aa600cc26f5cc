"""Where a bundle goes: one export at a time, and nothing is lost that is not the bundle's own.

Beside `<output>` lie, only while they are needed: `.<output>.lock`; `<output>.partial`, the bundle
in the making; `.<output>.replaced`, the older one during the exchange; `<output>.failed`, a bundle
that proves less than the one it would have replaced. Of an older bundle only what its manifest
names goes; the user's own files in it move into the new one, and a folder of the user's that has
one of these names is left alone.
"""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from exporters.bundle_files import MANIFEST, check_name, parse_manifest

UNFINISHED = ".unfinished"  # marks a bundle in the making as ours
REJECTED = "rejected"
SET_ASIDE = "set_aside"  # in a manifest: why the bundle did not replace the older one


def check_output(output: Path, needed_bytes: int) -> None:
    """Finds out before any work whether the bundle can be written.

    Raises:
        ValueError: The place holds something else, cannot be written, or has too little space.
    """
    is_folder = output.is_dir()
    if os.path.lexists(output) and not (is_folder and (is_empty(output) or holds_bundle(output))):
        raise ValueError(f"{output} exists and is not a bundle: choose another --output")
    if is_folder and os.path.ismount(output):
        raise ValueError(f"{output} is a mounted file system: choose a folder in it as --output")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        for folder in (output.parent, output) if is_folder else (output.parent,):
            probe = folder / f".{output.name}.probe"
            probe.write_bytes(b"")
            probe.unlink()
    except OSError as error:
        raise ValueError(f"cannot write to {folder_of(error, output)}: {error.strerror}") from error
    free = shutil.disk_usage(output.parent).free
    if free < needed_bytes:
        raise ValueError(
            f"the export needs about {needed_bytes / 1e6:.0f} MB in {output.parent}, "
            f"only {free / 1e6:.0f} MB are free"
        )


def folder_of(error: OSError, output: Path) -> Path:
    """The folder that could not be written."""
    return output if Path(str(error.filename)).parent == output else output.parent


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def holds_bundle(folder: Path) -> bool:
    """Whether a folder is a bundle, so that it is known which of its files may go.

    Raises:
        ValueError: It has a manifest that is not to be trusted.
    """
    if not (folder / MANIFEST).is_file():
        return False
    try:
        older_manifest(folder)
    except ValueError as error:
        raise ValueError(f"{error}; move {folder} away or choose another --output") from error
    return True


def older_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a bundle that is to be replaced; None where there is no bundle.

    Raises:
        ValueError: It is damaged, or names files outside the folder.
    """
    if not (folder / MANIFEST).is_file():
        return None
    manifest = parse_manifest(folder / MANIFEST)
    for name in (*manifest["files"], *(f"{REJECTED}/{name}" for name in manifest["artifacts"])):
        check_name(folder, name)
    return manifest


# ---- names beside the bundle -----------------------------------------------------------------


def free_name(output: Path, suffix: str, is_ours: Callable[[Path], bool]) -> Path:
    """`<output>.<suffix>`, or with the first number under which nothing of the user's lies."""
    for number in itertools.count(1):
        path = output.with_name(f"{output.name}.{suffix}" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(path) or (path.is_dir() and (is_empty(path) or is_ours(path))):
            break
    return path


def stage_folder(output: Path) -> Path:
    """A new folder for the bundle in the making, or what an interrupted export left of it."""
    return free_name(output, "partial", lambda folder: (folder / UNFINISHED).is_file())


def failed_folder(output: Path) -> Path:
    """Where a bundle goes that must not replace the older one."""

    def was_set_aside(folder: Path) -> bool:
        with suppress(ValueError):
            return SET_ASIDE in (older_manifest(folder) or {})
        return False

    return free_name(output, "failed", was_set_aside)


@contextmanager
def held(output: Path) -> Iterator[None]:
    """Makes this process the only one that writes a bundle; a killed one holds nothing.

    Raises:
        ValueError: Another export writes it.
    """
    path = output.with_name(f".{output.name}.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while lock(descriptor) and not is_at(path, descriptor):  # its last holder removed it
            os.close(descriptor)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ValueError(
            f"another export is writing {output}: wait for it, stop it, or choose another --output"
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file
            path.unlink()
        os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Locks an open file; False where the system or the file system has no locks.

    Raises:
        BlockingIOError: Another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


# ---- the exchange ----------------------------------------------------------------------------


def sync(folder: Path) -> None:
    """Makes a rename in a folder durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(new: Path, output: Path) -> list[Path]:
    """Puts a finished bundle in its place, with what an older one held besides its own files.

    Returns:
        Files of the user that got another name, since the bundle has one of the same.
    """
    older = replaced_folder(output)
    try:
        if output.exists():
            output.replace(older)
        new.replace(output)
    except BaseException:
        if older.exists() and not output.exists():
            older.replace(output)
        raise
    sync(output.parent)
    (output / UNFINISHED).unlink(missing_ok=True)
    return settle(output)


def replaced_folder(output: Path) -> Path:
    return output.with_name(f".{output.name}.replaced")


def settle(output: Path) -> list[Path]:
    """Ends an exchange, also one that was killed: afterwards there is one bundle, a whole one."""
    older = replaced_folder(output)
    if not older.is_dir():
        return []
    if not output.exists():  # killed between the two renames
        older.replace(output)
        return []
    (output / UNFINISHED).unlink(missing_ok=True)
    manifest = older_manifest(older)
    if manifest is not None:
        remove_own(older, manifest)
    renamed = list(move_into(older, output))
    sync(output)
    return renamed


def remove_own(bundle: Path, manifest: dict[str, Any]) -> None:
    """Removes what an export wrote into a bundle, the manifest last."""
    for name in manifest["artifacts"]:
        shutil.rmtree(bundle / REJECTED / name, ignore_errors=True)
    with suppress(OSError):  # the user has something there
        (bundle / REJECTED).rmdir()
    for folder in {(bundle / name).parent for name in manifest["files"]}:
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    for name in (*manifest["files"], MANIFEST):
        (bundle / name).unlink(missing_ok=True)


def move_into(source: Path, target: Path) -> Iterator[Path]:
    """Moves all that a folder holds, and the folder itself goes; yields what had to be renamed."""
    taken = [path.name for path in target.iterdir()]  # last, so that names they get are free
    for path in sorted(source.iterdir(), key=lambda path: (path.name in taken, path)):
        place = target / path.name
        if path.is_dir() and place.is_dir() and not (path.is_symlink() or place.is_symlink()):
            yield from move_into(path, place)
        elif os.path.lexists(place):
            kept = free_name(place, "kept", lambda _: False)
            path.replace(kept)
            yield kept
        else:
            path.replace(place)
    source.rmdir()
