"""One process's share of one run: its folder, what it says, and how it ends.

A run folder is made once by rank 0, is never overwritten, and is found by the other ranks; one
process at a time works in it.
"""

import errno
import multiprocessing
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from cli.parsing import Configuration, to_yaml
from cli.problems import UsageError, is_message, report_of
from cli.ranks import PATIENCE, STARTER, RankError, SharedErrors, is_rank_zero, say, starter_ends
from cli.settings import is_on
from cli.slurm import note_job
from cli.stop_signals import StopSignals

ENVIRONMENT_NAME = "FOUNDRY_RUN_FOLDER"
WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)  # of a file system


class Run:
    """A context in which an error becomes one message, however many ranks, and an exit code.

    Args:
        argv: The command line, of which switches are read that count before all others.

    Attributes:
        folder: Where results go; None before it is opened, where nothing is kept, and on ranks
            other than 0 that did not inherit it.
        signals: Requests to stop.
        exit_code: What the process ends with.
    """

    def __init__(self, argv: Sequence[str] = ()) -> None:
        self.folder: Path | None = None
        self.signals = StopSignals([w for w in argv if w == "--allow_external_code"])
        self.exit_code = 0
        self._with_traces = is_on(argv, "debug")
        self._errors = SharedErrors(self._end_with)
        self._at_end: list[Callable[[], Any]] = []

    # ---- what others see ---------------------------------------------------------------

    @property
    def is_rank_zero(self) -> bool:
        return is_rank_zero()

    @property
    def checkpoints(self) -> Path | None:
        """The folder of checkpoints, where there is a folder."""
        return self.folder / "checkpoints" if self.folder else None

    @property
    def folder_line(self) -> str | None:
        """Where results go, in words."""
        return f"run folder: {self.folder}" if self.folder else None

    def say(self, *lines: str | None) -> None:
        """Prints lines, without those that are empty, once for all ranks."""
        say(*lines)

    def at_end(self, action: Callable[[], Any]) -> None:
        """Has something done when the process ends, however it does; the last one first."""
        self._at_end.insert(0, action)

    def share_errors(self, num_ranks: int) -> None:
        """From when the ranks know each other, an error on one of them ends all."""
        if num_ranks > 1:
            self._errors.watch()

    # ---- the folder --------------------------------------------------------------------

    def open_folder(self, configuration: Configuration) -> None:
        """Makes the run folder, with the configuration inside; a resumed run goes on in its own.

        Raises:
            ValueError: Another process works in the folder.
            OSError: The folder cannot be made or written in.
        """
        if configuration["fast_dev_run"]:
            return
        if configuration["resume"]:
            resumed = Path(configuration["resume"]).resolve().parent.parent
            # a checkpoint that was taken out of its run starts a new folder
            self.folder = resumed if (resumed / "config.yaml").is_file() else None
        runs_dir, experiment = configuration["runs_dir"], configuration["experiment"]
        self.folder = self.folder or create_folder(runs_dir, experiment)
        if not (self.folder and is_rank_zero()):
            return
        try:
            self._lock(self.folder)
            note_job(self.folder)
            (self.folder / "config.yaml").write_text(to_yaml(configuration), encoding="utf-8")
        except OSError as error:
            raise OSError(
                f"cannot write in the run folder {self.folder}: {error.strerror}; copy it to where "
                "that is possible, and resume the checkpoint there"
            ) from error

    def _lock(self, folder: Path) -> None:
        lock = FileLock(folder / ".lock", timeout=0, thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire()
            self.at_end(lock.release)
        except Timeout as error:
            message = f"another process is training in {folder}; wait for it or stop it"
            raise ValueError(message) from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:  # else there is nothing to refuse by
                raise

    # ---- the end -----------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.signals.__enter__()
        os.environ[STARTER] = str(os.getpid())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Tells an error once for all ranks; one that nobody raised on purpose goes on."""
        try:
            return isinstance(error, Exception) and self._fail(error)
        finally:
            self._errors.stop()
            self._clear()
            self.signals.__exit__()

    def _fail(self, error: Exception) -> bool:
        """Sets the exit code; returns whether all is said."""
        self.exit_code = 2 if isinstance(error, UsageError) else 1
        report = report_of(error, self._with_traces)
        first = self._errors.share(report, self.exit_code)
        if not is_rank_zero():  # which should end first
            if starter_ends(launched=0 if first else PATIENCE) or first:
                return True
        elif first is not None and first.text != report:
            self.exit_code = first.code
            tell(first)
            return True
        if not is_message(error):
            return False
        tell(report)
        return True

    def _end_with(self, first: RankError) -> None:
        """Ends this process, which waits for a rank that has failed, from another thread."""
        if is_rank_zero():
            tell(first)
        self._clear()
        for child in multiprocessing.active_children():
            child.kill()
        sys.stdout.flush()
        if not is_rank_zero():
            starter_ends(launched=3)  # which should see rank 0 end first
        os._exit(first.code)

    def _clear(self) -> None:
        while self._at_end:
            self._at_end.pop(0)()


def tell(error: RankError | str) -> None:
    """Prints what is wrong, and where that was on another rank."""
    text = error
    if isinstance(error, RankError):
        lines = re.sub("^error: ", f"error: rank {error.rank}: ", error.text, flags=re.MULTILINE)
        text = lines if lines != error.text else f"on rank {error.rank}:\n{error.text}"
    print(text, end="", file=sys.stderr, flush=True)


def create_folder(runs_dir: str, experiment: str) -> Path | None:
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
