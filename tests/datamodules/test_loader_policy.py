import resource
import warnings
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from datamodules import loader_policy
from datamodules.digits import Digits
from datamodules.loader_policy import (
    LoaderFlags,
    cpu_quota,
    decide_loader_policy,
    open_files_hint,
    shared_memory_hint,
)

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("cpus", "in_memory", "ranks", "asked", "workers"),
    [
        (4, True, 1, None, 0),
        (4, False, 1, None, 4),
        (64, False, 1, None, 8),
        (64, False, 4, None, 8),
        (128, False, 8, None, 8),  # it was one: the limit was shared, too
        (16, False, 8, None, 2),
        (2, False, 4, None, 0),
        (4, True, 1, 3, 3),
        (4, False, 1, 0, 0),
    ],
)
def test_workers(monkeypatch, cpus, in_memory, ranks, asked, workers):
    monkeypatch.setattr(loader_policy, "usable_cpus", lambda: cpus)
    policy = decide_loader_policy(in_memory, False, ranks, LoaderFlags(asked))
    assert policy.num_workers == workers
    assert policy.prefetch_factor == (2 if workers else None)
    assert policy.loader_arguments()["persistent_workers"] == (workers > 0)
    assert str(policy).startswith(f"loading: {workers} workers")
    assert str(policy).count("\n") == 0


def test_everything_can_be_chosen_and_is_told() -> None:
    policy = decide_loader_policy(
        False, True, 1, LoaderFlags(3, False, prefetch_factor=5, persistent_workers=False)
    )
    arguments = policy.loader_arguments()
    assert {name: arguments[name] for name in list(arguments)[:4]} == {
        "num_workers": 3, "pin_memory": False, "prefetch_factor": 5, "persistent_workers": False,
    }  # fmt: skip
    assert str(policy) == (
        "loading: 3 workers (as asked), prefetch 5, started by forkserver anew for each epoch"
    )


def test_what_cannot_be_used_is_told_in_the_same_line() -> None:
    policy = decide_loader_policy(
        True, False, 1, LoaderFlags(None, True, prefetch_factor=5, persistent_workers=True)
    )
    assert policy.loader_arguments() == {
        "num_workers": 0, "pin_memory": False, "prefetch_factor": None, "persistent_workers": False,
        "multiprocessing_context": None,
    }  # fmt: skip
    assert str(policy) == (
        "loading: 0 workers (samples are in memory); not used: --data.pin_memory (no GPU), "
        "--data.prefetch_factor, --data.persistent_workers (no workers)"
    )


@pytest.mark.parametrize("flag", [{"prefetch_factor": 2}, {"persistent_workers": True}])
def test_flags_of_workers_without_any_are_refused(flag: dict[str, int]) -> None:
    (name,) = flag
    with pytest.raises(ValueError, match=f"^--data.{name} for no workers: --data.num_workers 0"):
        Digits(num_workers=0, **flag)


@pytest.mark.parametrize(
    ("groups", "files", "cpus"),
    [
        ("0::/", {"cpu.max": "250000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
        ("0::/not/mounted", {"cpu.max": "400000 100000"}, 4),
        (
            "2:cpu,cpuacct:/pod\n1:cpuset:/pod\n0::/",
            {"cpu/pod/cpu.cfs_quota_us": "600000", "cpu/pod/cpu.cfs_period_us": "100000"},
            6,
        ),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("", {}, None),
    ],
)
def test_a_containers_quota(
    tmp_path: Path, groups: str, files: dict[str, str], cpus: int | None
) -> None:
    """Of control groups version 2 and 1; the groups above count, too."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert cpu_quota(tmp_path) == cpus


def test_a_quota_lowers_the_usable_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_policy.os, "sched_getaffinity", lambda process: range(16))
    monkeypatch.setattr(loader_policy, "cpu_quota", lambda: 3)
    assert loader_policy.usable_cpus() == 3
    monkeypatch.setattr(loader_policy, "cpu_quota", lambda: None)
    assert loader_policy.usable_cpus() == 16


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_takes_the_arguments_without_a_warning(num_workers):
    """prefetch_factor without workers is an error, pin_memory without a GPU a warning."""
    arguments = decide_loader_policy(True, False, 1, LoaderFlags(num_workers)).loader_arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader(TensorDataset(torch.arange(4)), batch_size=2, **arguments)
        assert len(list(loader)) == 2


def test_memory_is_pinned_for_a_gpu_only():
    assert decide_loader_policy(True, True).pin_memory
    assert "pinned" in str(decide_loader_policy(True, True))
    assert not decide_loader_policy(True, False).pin_memory


def test_too_little_shared_memory_is_told_before_a_bus_error(monkeypatch):
    monkeypatch.setattr(loader_policy.os.path, "isdir", lambda path: True)
    free = Usage(0, 0, 8 * 2**20)
    monkeypatch.setattr(loader_policy.shutil, "disk_usage", lambda path: free)
    policy = decide_loader_policy(False, False, 1, LoaderFlags(4), batch_bytes=64 * 3 * 224 * 224)
    assert "need 110 MB of shared memory, but /dev/shm has 8 MB free" in str(policy)
    assert "--shm-size" in policy.hint
    assert not decide_loader_policy(False, False, 1, LoaderFlags(0), batch_bytes=10**9).hint
    assert not shared_memory_hint(12_000)


@pytest.mark.parametrize(
    ("soft", "hard", "workers", "now", "warns"),
    [
        (1024, 4096, 8, 1024, False),
        (256, 4096, 8, 4096, False),  # raised as far as it goes
        (256, -1, 8, 640, False),  # or as is needed
        (256, 512, 8, 512, True),
        (64, 64, 2, 64, True),
        (64, 64, 0, 64, False),
        (-1, -1, 8, -1, False),
    ],
)
def test_a_low_limit_of_open_files_is_raised_or_named(monkeypatch, soft, hard, workers, now, warns):
    """What a worker hands over holds files open; -1 stands for no limit."""
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, wanted: limits.append(wanted))
    hint = open_files_hint(workers, 3 * workers)
    assert limits[-1] == (now, hard)
    assert bool(hint) is warns
    assert not warns or f"may open {now} files (ulimit -n)" in hint
