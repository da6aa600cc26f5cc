"""Ctrl-C, SIGTERM and the warning of a batch system: stop at the next step, with a checkpoint.

Before training begins and after it has ended a signal ends the process at once. Exit codes: 130
after Ctrl-C, 143 otherwise. On SLURM the job is put back into the queue where the batch system
warned with SIGUSR1; started again, it resumes by itself (see `cli.resume`).
"""

import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self

from cli.ranks import is_rank_zero, starter_ends
from cli.slurm import requeue

SIGNAL_NAMES = ("SIGINT", "SIGTERM", "SIGUSR1")  # the last on SLURM only


class StopSignals:
    """Watches for requests to stop.

    Args:
        extra_flags: What the command that goes on needs beside the checkpoint.
    """

    def __init__(self, extra_flags: Sequence[str] = ()) -> None:
        self.extra_flags = list(extra_flags)
        self.received = 0  # the number of the first signal
        self.received_at = 0.0
        self.is_deferred = False
        self.checkpoint: Path | None = None  # the newest one, once there is one

    def __enter__(self) -> Self:
        self.original = {number: signal.getsignal(number) for number in handled_signals()}
        self.install()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.original.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Takes over the signals, again where another part has set its own handlers."""
        for number in handled_signals():
            signal.signal(number, self._handle)

    def defer(self) -> None:
        """From now on a signal is only noted; whoever trains asks `received` and calls `leave`."""
        self.install()
        self.is_deferred = True

    def act_at_once(self, checkpoint: Path | None) -> None:
        """From now on a signal ends the process at once again."""
        self.install()
        self.is_deferred, self.checkpoint = False, checkpoint
        if self.received:
            self.leave(self.received, checkpoint)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            os._exit(128 + number)  # asked twice: nothing more is saved
        if not self.received:
            self.received, self.received_at = number, time.monotonic()
        if not self.is_deferred:
            self.leave(self.received, self.checkpoint)
        elif is_rank_zero():
            text = "stopping after this step, with a checkpoint (Ctrl-C again: at once)"
            note = f"\n{signal.Signals(number).name}: {text}\n"
            os.write(2, note.encode())  # print could be interrupted in itself

    @property
    def seconds_waited(self) -> float:
        """Since the first signal."""
        return time.monotonic() - self.received_at

    def leave(self, number: int, checkpoint: Path | None) -> None:
        """Says how to go on, and ends the process.

        Raises:
            SystemExit: 130 after Ctrl-C, else 143. On other ranks 0 where rank 0 ends as well:
                after an error it would be killed, and end with 137.
        """
        code = 130 if number == signal.SIGINT else 143
        if is_rank_zero():
            print(f"stopped by {signal.Signals(number).name}", file=sys.stderr)
            if checkpoint is None or not checkpoint.is_file():
                print("no checkpoint had been written yet", file=sys.stderr)
            else:
                words = ["python", "train.py", "--resume", str(shortest(checkpoint))]
                command = shlex.join([*words, *self.extra_flags])
                print(f"go on with:\n  {command}", file=sys.stderr)
            if number == getattr(signal, "SIGUSR1", None):
                requeue()
        elif self.is_deferred or starter_ends():  # deferred, all ranks leave together
            code = 0
        raise SystemExit(code)


def handled_signals() -> list[Any]:
    """SIGUSR1 only on SLURM, which sends it before the time of a job is over."""
    names = SIGNAL_NAMES if "SLURM_JOB_ID" in os.environ else SIGNAL_NAMES[:2]
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


def shortest(path: Path) -> Path:
    """Relative where it lies below the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
