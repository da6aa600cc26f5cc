"""Says which sample a loader waits for where no batch comes, instead of hanging without a word.

Every process that reads notes the sample it is at in shared memory. While the main process waits
for a batch, a thread looks at the clock, and after the time-out at those notes.

W workers, or 1 where the main process itself reads.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

THREAD = "watch for stalls"
IDLE = -1
place = np.array([IDLE])  # the note of this process, int64 [1]


class NoBatchError(TimeoutError):
    """No batch came in time, and the user asked to stop then."""


def at_sample(sample: int) -> None:
    """Notes the sample, a row of its split, that this process reads next."""
    place[0] = sample


def take_place(places: Tensor, worker: int) -> None:
    """From now on this process notes where it is at int64 [W][worker]."""
    global place
    place = places.numpy()[worker : worker + 1]


class NotedBatches(Dataset):
    """A dataset whose batches are noted by their first sample, and by IDLE when they are read."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, wanted: Any) -> Any:
        at_sample(wanted.indices[0])
        batch = self.dataset.__getitems__(wanted)
        at_sample(IDLE)
        return batch


class StallWatch:
    """Watches over the batches of one loader.

    Args:
        num_workers: Processes that read; 0 is the main process.
        seconds: How long no batch may come.
        stops: Whether it then raises in the main thread, instead of waiting on.
        describe: Names a sample.
    """

    def __init__(
        self, num_workers: int, seconds: float, stops: bool, describe: Callable[[int], str]
    ) -> None:
        self.num_workers = num_workers
        self.seconds = seconds
        self.stops = stops and hasattr(signal, "pthread_kill")
        self.describe = describe
        self.places = torch.full((max(1, num_workers),), IDLE).share_memory_()
        self.waiting_since: float | None = None
        self.lock = threading.Lock()
        self.worker_init = partial(take_place, self.places) if num_workers else None

    def watched(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same batches.

        Raises:
            NoBatchError: None came in time, and that was asked for.
        """
        done = threading.Event()
        watch = threading.Thread(target=self._look, args=(done,), name=THREAD, daemon=True)
        watch.start()
        try:
            while True:
                try:
                    with self._waiting():
                        batch = next(batches)
                except StopIteration:
                    return
                yield batch
        finally:
            done.set()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """While a batch is fetched."""
        if not self.num_workers:  # another loader may have been read from meanwhile
            take_place(self.places, 0)
        before = signal.signal(signal.SIGALRM, self._raise) if self.stops else None
        self.waiting_since = time.monotonic()
        try:
            yield
        finally:
            with self.lock:  # from here on no alarm comes
                self.waiting_since = None
            if self.stops:
                signal.signal(signal.SIGALRM, before)

    def text(self) -> str:
        """What is waited for."""
        found = [
            f"{f'worker {worker} is' if self.num_workers else 'it stands'} at {self.describe(row)}"
            for worker, row in enumerate(self.places.tolist())
            if row != IDLE
        ]
        where = ", ".join(found) or "no worker is reading"
        return f"no batch has come for {self.seconds:g} s (--data.timeout): {where}"

    def _look(self, done: threading.Event) -> None:
        said: float | None = None
        while not done.wait(min(self.seconds / 4, 1.0)):
            since = self.waiting_since
            if since in (None, said) or time.monotonic() - since < self.seconds:
                continue
            said = since
            if not self.stops:
                print(f"warning: {self.text()}; still waiting", flush=True)
                continue
            with self.lock:
                if self.waiting_since is since:  # interrupts what the main thread waits in
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self.waiting_since is not None:
            raise NoBatchError(f"{self.text()}; stopped, as --data.on_timeout asks")
