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
from datetime import timedelta
from typing import NamedTuple

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


def starter_ends(launched: float = 0.0) -> bool:
    """Waits for the process that started this one, which is rank 0 or a launcher; whether it ends.

    Args:
        launched: Seconds to wait where it is a launcher, such as torchrun, which ends its ranks.
    """
    end = time.monotonic() + (PATIENCE if str(PARENT) == STARTED_BY else launched)
    while time.monotonic() < end:
        if os.getppid() != PARENT:
            return True
        time.sleep(0.05)
    return False


class RankError(NamedTuple):
    """An error, and the rank that it was raised on."""

    rank: int
    code: int  # that the run ends with
    text: str  # what is to be printed


class SharedErrors:
    """The first error of any rank, known to all.

    Args:
        end: Called with another rank's, in a thread of this rank; ends the process, whose main
            thread may be blocked for good.
    """

    def __init__(self, end: Callable[[RankError], None]) -> None:
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
            The first error of all, known to rank 0; None where that cannot be reached.
        """
        self.stop()
        if self.is_ending.is_set():
            time.sleep(2 * PATIENCE)  # this error is a consequence, and the thread ends the process
        known = None
        with suppress(RuntimeError):  # the store has gone, and rank 0 with it
            self.store = self.store or connect()
            if self.store is not None:
                mine = json.dumps((torch.distributed.get_rank(), code, text))
                first = RankError(*json.loads(self.store.compare_set("error", "", mine)))
                known = first if is_rank_zero() else None
                self._leave(self.store)
                known = first
        return known

    def _leave(self, store: Store) -> None:
        """Uses the store for the last time; rank 0, whose process may hold it, after all others.

        Raises:
            RuntimeError: Others do not answer.
        """
        if is_rank_zero():
            store.set("rank 0 knows", "")
            others = range(1, torch.distributed.get_world_size())
            store.wait([f"rank {rank} leaves" for rank in others], timedelta(seconds=5))
        else:
            store.wait(["rank 0 knows"], timedelta(seconds=PATIENCE))
            store.set(f"rank {torch.distributed.get_rank()} leaves", "")

    def _watch(self) -> None:
        with suppress(RuntimeError):  # the store has gone: the end of rank 0 is known otherwise
            while not self.is_over.wait(PERIOD):
                self.store = self.store or connect()
                if self.store is None or not self.store.check(["error"]):
                    continue
                first = RankError(*json.loads(self.store.get("error")))
                if is_rank_zero() and self.is_over.wait(GRACE):
                    return  # this rank has an error of its own, and speaks in its other thread
                self.is_ending.set()
                with suppress(RuntimeError):
                    self._leave(self.store)
                self.end(first)


def connect() -> Store | None:
    """Another connection to the store of the process group, once there is one."""
    if not torch.distributed.is_initialized():
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=PATIENCE))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun's store outlives one
    return PrefixStore(f"errors of attempt {attempt}", store)
