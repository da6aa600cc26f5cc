"""What callbacks see of the run that they are part of; `cli.run.Run` is one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class Signals(Protocol):
    """Who asks this process to stop, and how it then ends."""

    received: int  # the number of the first signal; 0 before it

    @property
    def seconds_waited(self) -> float:
        """Since the first signal."""

    def defer(self) -> None:
        """From now on a signal is only noted, and whoever trains asks for it."""

    def act_at_once(self, checkpoint: Path | None) -> None:
        """From now on a signal ends the process at once."""

    def leave(self, number: int, checkpoint: Path | None) -> None:
        """Ends the process, and says how to go on from the checkpoint."""


class Run(Protocol):
    """One process's share of one run."""

    @property
    def folder(self) -> Path | None:
        """Where results go; None where nothing is kept, or on other ranks that do not know it."""

    @property
    def checkpoints(self) -> Path | None:
        """The folder of checkpoints, likewise."""

    @property
    def signals(self) -> Signals:
        """Requests to stop."""

    def at_end(self, action: Callable[[], Any]) -> None:
        """Has something done when the process ends, however it does."""
