"""Reads and writes checkpoint files: a file is either whole or absent, and never runs code."""

import contextlib
import errno
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, syncs to disk, then renames; the previous file stays until then."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Saves primitives and tensors.

        Args:
            storage_options: "keep" is where the file that is replaced goes to; "errors" is a list
                that receives an error in its place, for callers that meet other ranks at a
                barrier afterwards.

        Raises:
            OSError: The folder cannot be written or the disk is full; nothing is left behind.
            ValueError: A callback keeps what could not be read again.
        """
        options = storage_options or {}
        try:
            self.write(checkpoint, Path(path), options.get("keep"))
        except (OSError, ValueError) as error:
            if "errors" not in options:
                raise
            options["errors"].append(error)

    def write(self, checkpoint: dict[str, Any], path: Path, keep: Path | None) -> None:
        """Writes one file; the one it replaces is moved to `keep` only when the new one is safe."""
        for name, state in checkpoint.get("callbacks", {}).items():
            if strange := strange_type(state):
                raise ValueError(
                    f"callback {name} has {strange.__name__} in its state_dict(): a checkpoint "
                    "holds tensors and plain values only (numbers, text, lists, dicts)"
                )
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            if keep is not None and path.exists():
                os.replace(path, keep)
            os.replace(temporary, path)
        except BaseException as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if isinstance(error, (OSError, RuntimeError)):  # torch reports a full disk as either
                raise OSError(f"cannot write checkpoint {path}: {reason(error)}") from error
            raise
        sync_folder(path.parent)

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Loads to the CPU; anything but primitives and tensors is refused."""
        return torch.load(path, map_location=map_location or "cpu", weights_only=True)


def strange_type(value: Any) -> type | None:
    """The type of something that `load_checkpoint` would refuse."""
    if type(value) in (dict, OrderedDict):
        return next(filter(None, map(strange_type, [*value, *value.values()])), None)
    if type(value) in (list, tuple):
        return next(filter(None, map(strange_type, value)), None)
    is_plain = value is None or type(value) in (bool, int, float, str, bytes)
    return None if is_plain or isinstance(value, Tensor) else type(value)


def reason(error: BaseException | None) -> str:
    """What the operating system said; torch, while it cleans up, raises something else over it."""
    text = str(error)
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            return f"the disk is full ({error.strerror})" if is_full else error.strerror
        error = error.__context__
    return text


def sync_folder(folder: Path) -> None:
    """Makes a rename durable; not possible, nor needed, on Windows."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
