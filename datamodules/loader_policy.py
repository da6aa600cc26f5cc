"""How batches are loaded: one decision for workers, pinned memory and prefetching."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_WORKERS = 8
PREFETCH_FACTOR = 2
FILES_A_BATCH = 16  # on its way from a worker: one a tensor, and what hands it over
OTHER_FILES = 256  # libraries, logs, connections
SHARED_MEMORY = "/dev/shm"  # where workers hand over their batches on Linux


@dataclass(frozen=True)
class LoaderFlags:
    """What the user wants; None leaves it to the policy.

    Raises:
        ValueError: It contradicts itself.
    """

    num_workers: int | None = None
    pin_memory: bool | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None

    def __post_init__(self) -> None:
        if self.num_workers == 0 and (names := self.of_workers):
            raise ValueError(
                f"{names} for no workers: --data.num_workers 0 asks for none; leave one out"
            )

    @property
    def of_workers(self) -> str:
        """Those that need workers, by name."""
        names = ("prefetch_factor", "persistent_workers")
        return ", ".join(f"--data.{name}" for name in names if getattr(self, name))


@dataclass(frozen=True)
class LoaderPolicy:
    """Arguments of a DataLoader, and the reason in words."""

    num_workers: int
    pin_memory: bool
    prefetch_factor: int | None
    persistent_workers: bool
    start_method: str | None
    reason: str
    unused: str = ""
    hint: str = ""

    def loader_arguments(self) -> dict[str, Any]:
        return {
            "num_workers": self.num_workers,
            "pin_memory": self.pin_memory,
            "prefetch_factor": self.prefetch_factor,
            "persistent_workers": self.persistent_workers,
            "multiprocessing_context": self.start_method,
        }

    def __str__(self) -> str:
        line = f"loading: {self.num_workers} workers ({self.reason})"
        if self.num_workers:
            line += f", prefetch {self.prefetch_factor}, started by {self.start_method}"
            line += "" if self.persistent_workers else " anew for each epoch"
        line += ", pinned memory" if self.pin_memory else ""
        line += f"; not used: {self.unused}" if self.unused else ""
        return f"{line}\n{self.hint}" if self.hint else line


def decide_loader_policy(
    in_memory: bool,
    on_gpu: bool,
    ranks_on_node: int = 1,
    asked: LoaderFlags = LoaderFlags(),
    batch_bytes: int = 0,
) -> LoaderPolicy:
    """Chooses how to load, where the user did not.

    Args:
        in_memory: Samples are decoded already, a batch is one vectorised gather.
        on_gpu: Batches go to a GPU; only then pinned memory pays.
        ranks_on_node: Processes on this machine that share its CPUs.
        asked: What the user chose.
        batch_bytes: Size of one rank's batch, compared with the free shared memory.
    """
    cpus = usable_cpus()
    if (num_workers := asked.num_workers) is not None:
        reason = "as asked"
    elif in_memory:
        num_workers, reason = 0, "samples are in memory"
    else:
        num_workers = min(MAX_WORKERS, cpus // ranks_on_node)
        reason = f"{cpus} usable CPUs, {ranks_on_node} rank{'s' * (ranks_on_node > 1)}"
    unused = ["--data.pin_memory (no GPU)"] if asked.pin_memory and not on_gpu else []
    if asked.of_workers and not num_workers:
        unused.append(f"{asked.of_workers} (no workers)")
    prefetch = asked.prefetch_factor or PREFETCH_FACTOR
    in_flight = num_workers * (prefetch + 1)
    hints = (
        shared_memory_hint(batch_bytes * in_flight * ranks_on_node),
        open_files_hint(num_workers, in_flight),
    )
    return LoaderPolicy(
        num_workers=num_workers,
        hint="\n".join(filter(None, hints)),
        unused=", ".join(unused),
        pin_memory=on_gpu and asked.pin_memory is not False,
        prefetch_factor=prefetch if num_workers else None,
        persistent_workers=num_workers > 0 and asked.persistent_workers is not False,
        # forked children of a process with running threads can hang
        start_method="forkserver" if num_workers and os.name == "posix" else None,
        reason=reason,
    )


def shared_memory_hint(needed: int) -> str:
    """A warning where the bytes in flight do not fit into shared memory (empty: they do)."""
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


def open_files_hint(num_workers: int, in_flight: int) -> str:
    """Raises a low limit of open files as far as it goes; a warning where that is not enough."""
    needed = OTHER_FILES + FILES_A_BATCH * in_flight
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
    has_affinity = hasattr(os, "sched_getaffinity")
    cpus = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(cpus, cpu_quota() or cpus)


def cpu_quota(system: Path = Path("/")) -> int | None:
    """Whole CPUs' worth of time that the control groups of this process leave it, at least 1; None
    where they set no limit. See the kernel's cgroup-v1 and cgroup-v2 documents."""
    found = []
    for line in text_of(system / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        top = system / "sys/fs/cgroup" / ("cpu" if controllers else "")
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents[: len(group.parts) - len(top.parts)]):
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
            with suppress(ValueError):  # of "max", and of what is not there
                quota, period = " ".join(text_of(folder / name) for name in names).split()
                found.append(int(quota) / int(period))
    limits = [limit for limit in found if limit > 0]  # -1 is none
    return max(1, int(min(limits))) if limits else None


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
