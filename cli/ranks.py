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
GRACE = 1.0  # seconds in which a rank that hears of an error may fail of itself
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
        on_error: Called with another rank's, in a thread of this rank; ends the process.
    """

    def __init__(self, on_error: Callable[[RankError], None]) -> None:
        self.on_error = on_error
        self.store: Store | None = None
        self.is_over = threading.Event()

    def watch(self) -> None:
        """Starts to look for errors of other ranks, as soon as these know each other."""
        if not self.is_over.is_set():
            threading.Thread(target=self._watch, name="errors-of-ranks", daemon=True).start()

    def stop(self) -> None:
        """Looks no longer."""
        self.is_over.set()

    def share(self, text: str, code: int) -> RankError | None:
        """Tells all ranks of an error on this one.

        Returns:
            The first error of all, once all that must know it do; None where they cannot be told.
        """
        self.stop()
        if self.store is None:
            return None
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        with suppress(RuntimeError):  # the store has gone, and rank 0 with it
            mine = json.dumps(asdict(RankError(rank, text, code)))
            first = self.store.compare_set("error", "", mine)
            self.hear(rank)
            # rank 0 waits until the others know why they end, and they until it has spoken
            heard, needed = ("heard", size) if rank == 0 else ("rank 0", 1)
            end = time.monotonic() + (2 * GRACE if rank == 0 else PATIENCE)
            while self.store.add(heard, 0) < needed and time.monotonic() < end:
                time.sleep(0.05)
            return RankError(**json.loads(first)) if self.store.add("rank 0", 0) else None
        return None

    def hear(self, rank: int) -> None:
        """Says that this rank knows."""
        assert self.store is not None
        self.store.add("heard", 1)
        if rank == 0:
            self.store.add("rank 0", 1)

    def _watch(self) -> None:
        with suppress(RuntimeError):  # the store has gone: the end of rank 0 is known otherwise
            while not self.is_over.wait(PERIOD):
                if self.store is None:
                    self.store = connect()
                elif self.store.check(["error"]):
                    first = RankError(**json.loads(self.store.get("error")))
                    if not self.is_over.wait(GRACE):  # else this rank has an error of its own
                        self.hear(torch.distributed.get_rank())
                        self.on_error(first)
                    return


def connect() -> Store | None:
    """Another connection to the store of the process group, once there is one."""
    if not torch.distributed.is_initialized():
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=PATIENCE))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun's store outlives one
    return PrefixStore(f"errors of attempt {attempt}", store)
