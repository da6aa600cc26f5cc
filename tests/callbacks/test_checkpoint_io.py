"""A checkpoint file is whole or absent; the previous one survives a failed write."""

import errno
import io
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO

STATE = {"weights": torch.arange(10.0), "epoch": 3, "name": "a"}


def test_round_trip(tmp_path: Path) -> None:
    AtomicCheckpointIO().save_checkpoint(STATE, tmp_path / "new" / "a.ckpt")
    loaded = AtomicCheckpointIO().load_checkpoint(tmp_path / "new" / "a.ckpt")
    assert torch.equal(loaded["weights"], STATE["weights"])
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.ckpt"]


@pytest.mark.slow
def test_a_failed_write_keeps_the_previous_file(tmp_path: Path) -> None:
    """The limit on file sizes plays a full disk; it holds in a process of its own."""
    path = tmp_path / "a.ckpt"
    AtomicCheckpointIO().save_checkpoint(STATE, path)
    before = path.read_bytes()
    script = f"""
import resource, signal, torch
from callbacks.checkpoint_io import AtomicCheckpointIO
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    AtomicCheckpointIO().save_checkpoint({{"w": torch.zeros(100000)}}, {str(path)!r})
except OSError as error:
    print("refused:", error)
"""
    assert resource.RLIMIT_FSIZE is not None
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f"refused: cannot write checkpoint {path}" in result.stdout, result.stderr
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.ckpt"]


class FailingFile(io.FileIO):
    """A file on a disk that refuses at some byte."""

    number = errno.ENOSPC
    left = 0

    def write(self, data: object) -> int:
        size = memoryview(data).nbytes  # type: ignore[arg-type]
        if size > self.left:
            raise OSError(self.number, os.strerror(self.number))
        self.left -= size
        return super().write(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("room", [0, 60, 700, 30_000])
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full (No space left on device)"),
        (errno.EDQUOT, "the disk is full (Disk quota exceeded)"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_what_the_disk_said_is_told_and_not_what_torch_makes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str, room: int
) -> None:
    monkeypatch.setattr(FailingFile, "number", number)
    monkeypatch.setattr(FailingFile, "left", room)
    monkeypatch.setattr(Path, "open", lambda path, mode: FailingFile(str(path), mode))
    path = tmp_path / "a.ckpt"
    with pytest.raises(OSError, match="cannot write") as caught:
        AtomicCheckpointIO().save_checkpoint({"w": torch.zeros(20_000)}, path)
    assert str(caught.value) == f"cannot write checkpoint {path}: {said}"
    assert caught.value.__cause__ is not None
    assert not list(tmp_path.iterdir())


def test_a_kill_before_the_rename_keeps_the_previous_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.ckpt"
    AtomicCheckpointIO().save_checkpoint(STATE, path)
    before = path.read_bytes()

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        AtomicCheckpointIO().save_checkpoint({"epoch": 4}, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.ckpt"]


def test_an_unwritable_folder_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot write checkpoint"):
        AtomicCheckpointIO().save_checkpoint(STATE, tmp_path / "file" / "a.ckpt")


def test_code_in_a_file_does_not_run(tmp_path: Path) -> None:
    class Malicious:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    torch.save({"a": Malicious()}, tmp_path / "a.ckpt")
    with pytest.raises(Exception, match="Weights only load failed"):
        AtomicCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")
    assert not (tmp_path / "ran").exists()
