"""How batches are loaded: one decision for workers, pinned memory and prefetching."""

import os
import shutil
from dataclasses import dataclass
from typing import Any

MAX_WORKERS = 8
PREFETCH_FACTOR = 2
FILES_A_BATCH = 16  # on its way from a worker: one a tensor, and what hands it over
OTHER_FILES = 256  # libraries, logs, connections
SHARED_MEMORY = "/dev/shm"  # where workers hand over their batches on Linux


@dataclass(frozen=True)
class LoaderPolicy:
    """Arguments of a DataLoader, and the reason in words."""

    num_workers: int
    pin_memory: bool
    prefetch_factor: int | None
    start_method: str | None
    reason: str
    hint: str = ""

    def loader_arguments(self) -> dict[str, Any]:
        return {
            "num_workers": self.num_workers,
            "pin_memory": self.pin_memory,
            "prefetch_factor": self.prefetch_factor,
            "persistent_workers": self.num_workers > 0,
            "multiprocessing_context": self.start_method,
        }

    def __str__(self) -> str:
        line = f"loading: {self.num_workers} workers ({self.reason})"
        if self.num_workers:
            line += f", prefetch {self.prefetch_factor}, started by {self.start_method}"
        line += ", pinned memory" if self.pin_memory else ""
        return f"{line}\n{self.hint}" if self.hint else line


def decide_loader_policy(
    in_memory: bool,
    on_gpu: bool,
    ranks_on_node: int = 1,
    num_workers: int | None = None,
    batch_bytes: int = 0,
) -> LoaderPolicy:
    """Chooses how to load.

    Args:
        in_memory: Samples are decoded already, a batch is one vectorised gather.
        on_gpu: Batches go to a GPU; only then pinned memory pays.
        ranks_on_node: Processes on this machine that share its CPUs.
        num_workers: The user's choice for each rank; None lets the policy decide.
        batch_bytes: Size of one rank's batch, compared with the free shared memory.
    """
    cpus = usable_cpus()
    if num_workers is not None:
        reason = "as asked"
    elif in_memory:
        num_workers, reason = 0, "samples are in memory"
    else:
        num_workers = min(MAX_WORKERS, cpus) // ranks_on_node
        reason = f"{cpus} usable CPUs, {ranks_on_node} rank{'s' * (ranks_on_node > 1)}"
    hints = (
        shared_memory_hint(batch_bytes, num_workers, ranks_on_node),
        open_files_hint(num_workers),
    )
    return LoaderPolicy(
        num_workers=num_workers,
        hint="\n".join(filter(None, hints)),
        pin_memory=on_gpu,
        prefetch_factor=PREFETCH_FACTOR if num_workers else None,
        # forked children of a process with running threads can hang
        start_method="forkserver" if num_workers and os.name == "posix" else None,
        reason=reason,
    )


def shared_memory_hint(batch_bytes: int, num_workers: int, ranks_on_node: int = 1) -> str:
    """A warning where the batches in flight do not fit into shared memory (empty: they do)."""
    needed = batch_bytes * num_workers * (PREFETCH_FACTOR + 1) * ranks_on_node
    if not needed or not os.path.isdir(SHARED_MEMORY):
        return ""
    free = shutil.disk_usage(SHARED_MEMORY).free
    if needed <= free:
        return ""
    return (
        f"warning: batches in flight need {needed / 2**20:.0f} MB of shared memory, but "
        f"{SHARED_MEMORY} has {free / 2**20:.0f} MB free: a worker may die of a bus error; start "
        "the container with --ipc=host or a larger --shm-size, or lower --data.num_workers or "
        "--data.batch_size"
    )


def open_files_hint(num_workers: int) -> str:
    """Raises a low limit of open files as far as it goes; a warning where that is not enough."""
    needed = OTHER_FILES + FILES_A_BATCH * num_workers * (PREFETCH_FACTOR + 1)
    try:
        import resource
    except ImportError:  # Windows
        return ""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not num_workers or soft == resource.RLIM_INFINITY or soft >= needed:
        return ""
    highest = needed if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, highest), hard))
    if highest >= needed:
        return ""
    return (
        f"warning: this process may open {highest} files (ulimit -n), but {num_workers} workers "
        f"may need {needed}: loading may fail with 'Too many open files'; raise the limit, or "
        "lower --data.num_workers"
    )


def usable_cpus() -> int:
    """CPUs this process may run on (fewer than the machine has in containers and job queues)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
