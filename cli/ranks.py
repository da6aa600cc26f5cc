"""The processes of one run: rank 0 speaks for all, and an error on any of them ends them all.

A rank that fails alone would leave the others waiting for it in a collective, where no other
collective can reach them. So it writes its error into the store of the process group, which a
thread of every rank looks at. Rank 0 tells it and is the first to end: Lightning kills the main
process where one that it started ends with an error before that.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch.distributed
from pytorch_lightning.utilities import rank_zero_only
from torch.distributed import PrefixStore, Store, TCPStore

PATIENCE = 15.0  # seconds that rank 0 may need to speak, or to end
PERIOD = 0.5  # seconds between two looks
GRACE = 1.0  # seconds in which rank 0, having heard of an error, may fail of itself
STARTER = "FOUNDRY_STARTER"  # in the environment: the process that starts those of other ranks
STARTED_BY, PARENT = os.environ.get(STARTER), os.getppid()


def is_rank_zero() -> bool:
    """Known from the environment, before there is a Trainer."""
    return rank_zero_only.rank == 0  # type: ignore[attr-defined]


def say(*lines: str | None) -> None:
    """Prints lines, without those that are empty, once for all ranks."""
    if is_rank_zero():
        print(*(f"{line}\n" for line in lines if line), sep="", end="", flush=True)


def starter_ends(patience: float = PATIENCE) -> bool:
    """Waits, on a rank that Lightning started, for the process that started it; whether it ends."""
    end = time.monotonic() + patience
    while str(PARENT) == STARTED_BY and time.monotonic() < end:
        if os.getppid() != PARENT:
            return True
        time.sleep(0.05)
    return False


@dataclass(frozen=True)
class RankError:
    """An error, and the rank that it was raised on."""

    rank: int
    text: str  # what is to be printed
    code: int  # that the run ends with


class SharedErrors:
    """The first error of any rank, known to all.

    Args:
        on_error: Called with another rank's, in a thread of this rank, to tell it.
        end: Called with its exit code after that; ends the process, as its own thread may be
            blocked for good.
    """

    def __init__(self, on_error: Callable[[RankError], None], end: Callable[[int], None]) -> None:
        self.on_error = on_error
        self.end = end
        self.store: Store | None = None
        self.is_over = threading.Event()  # this rank has ended, or failed
        self.is_ending = threading.Event()  # another one has failed

    def watch(self) -> None:
        """Starts to look for errors of other ranks, as soon as these know each other."""
        threading.Thread(target=self._watch, name="errors-of-ranks", daemon=True).start()

    def stop(self) -> None:
        """Looks no longer."""
        self.is_over.set()

    def share(self, text: str, code: int) -> RankError | None:
        """Tells all ranks of an error on this one.

        Returns:
            The first error of all, once all know it; None where they cannot be reached.
        """
        self.stop()
        if self.is_ending.is_set():
            time.sleep(2 * PATIENCE)  # this error is a consequence, and the thread ends the process
        with suppress(RuntimeError):  # the store has gone, and rank 0 with it
            self.store = self.store or connect()
            if self.store is not None:
                mine = RankError(torch.distributed.get_rank(), text, code)
                first = self.store.compare_set("error", "", json.dumps(asdict(mine)))
                return RankError(**json.loads(first)) if self._part() else None
        return None

    def _part(self) -> bool:
        """Uses the store for the last time; rank 0, which holds it, when all others have done so.

        Returns:
            Whether rank 0 knows of the error.
        """
        assert self.store is not None
        others = torch.distributed.get_world_size() - 1
        if torch.distributed.get_rank() == 0:
            self.store.add("rank 0", 1)
            return self._reaches("others", others, PATIENCE / 3) or True
        knows = self._reaches("rank 0", 1, PATIENCE)
        self.store.add("others", 1)
        return knows

    def _reaches(self, key: str, number: int, patience: float) -> bool:
        """Waits until a count in the store has reached a number; whether it has."""
        assert self.store is not None
        end = time.monotonic() + patience
        while (found := self.store.add(key, 0)) < number and time.monotonic() < end:
            time.sleep(0.05)
        return found >= number

    def _watch(self) -> None:
        with suppress(RuntimeError):  # the store has gone: the end of rank 0 is known otherwise
            while not self.is_over.wait(PERIOD):
                self.store = self.store or connect()
                if self.store is None or not self.store.check(["error"]):
                    continue
                first = RankError(**json.loads(self.store.get("error")))
                if is_rank_zero() and self.is_over.wait(GRACE):
                    return  # this rank has an error of its own, and speaks in its other thread
                self.is_ending.set()
                self.on_error(first)
                with suppress(RuntimeError):
                    self._part()
                self.end(first.code)


def connect() -> Store | None:
    """Another connection to the store of the process group, once there is one."""
    if not torch.distributed.is_initialized():
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=PATIENCE))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun's store outlives one
    return PrefixStore(f"errors of attempt {attempt}", store)
