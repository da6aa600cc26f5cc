import resource
import warnings
from collections import namedtuple

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from datamodules import loader_policy
from datamodules.loader_policy import (
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
        (64, False, 4, None, 2),
        (2, False, 4, None, 0),
        (4, True, 1, 3, 3),
        (4, False, 1, 0, 0),
    ],
)
def test_workers(monkeypatch, cpus, in_memory, ranks, asked, workers):
    monkeypatch.setattr(loader_policy, "usable_cpus", lambda: cpus)
    policy = decide_loader_policy(in_memory, False, ranks, asked)
    assert policy.num_workers == workers
    assert policy.prefetch_factor == (2 if workers else None)
    assert policy.loader_arguments()["persistent_workers"] == (workers > 0)
    assert str(policy).startswith(f"loading: {workers} workers")
    assert str(policy).count("\n") == 0


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_takes_the_arguments_without_a_warning(num_workers):
    """prefetch_factor without workers is an error, pin_memory without a GPU a warning."""
    arguments = decide_loader_policy(True, False, 1, num_workers).loader_arguments()
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
    policy = decide_loader_policy(False, False, 1, 4, batch_bytes=64 * 3 * 224 * 224)
    assert "need 110 MB of shared memory, but /dev/shm has 8 MB free" in str(policy)
    assert "--shm-size" in policy.hint
    assert not decide_loader_policy(False, False, 1, 0, batch_bytes=10**9).hint
    assert not shared_memory_hint(1000, num_workers=4)


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
    hint = open_files_hint(workers)
    assert limits[-1] == (now, hard)
    assert bool(hint) is warns
    assert not warns or f"may open {now} files (ulimit -n)" in hint
