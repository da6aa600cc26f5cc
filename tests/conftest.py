"""Settings of every test: one thread, a home of its own, and no network but the loopback."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from exporters import process
from tests.fresh_process import PRELOADED
from tests.parts import RemovedParts, skip_removed

sys.meta_path.append(RemovedParts())
process.PRELOADED[:] = PRELOADED  # one fork server for exports and for scripts

# Before torch or numpy is imported, and inherited by every process a test starts.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["MPLBACKEND"] = "Agg"
for launched_by in ("WANDB_API_KEY", "WANDB_MODE", "SLURM_NTASKS", "WORLD_SIZE", "LOCAL_RANK"):
    os.environ.pop(launched_by, None)  # a login or a launcher of whoever runs the tests

HOME = Path(tempfile.mkdtemp(prefix="home-of-tests-"))
os.environ["HOME"] = str(HOME)  # settings, logins and caches of whoever runs the tests stay out
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(HOME / "inductor")  # else in the system's /tmp
# named by a hash of their sources, and slow to compile: kept for the next run
os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(__file__).parents[1] / ".pytest_cache" / "operators")


def is_local(host: object) -> bool:
    """Whether a host name or address means this machine."""
    if isinstance(host, bytes):
        host = host.decode()
    if host in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def refuse_network(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook (PEP 578), since it also sees sockets that no Python-level patch would."""
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # a string: a Unix socket
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    if not is_local(host):
        raise RuntimeError(f"a test may not use the network: {event} to {host}")


sys.addaudithook(refuse_network)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For `pytest -n`, which gives out whole files: those with most long tests come first."""
    skip_removed(items)
    if hasattr(config, "workerinput"):
        long = Counter(item.path for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: -long[item.path])


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(autouse=True)
def known_warnings() -> None:
    """Every warning is an error in a test, except those that train.py hides for a reason."""
    from cli.known_warnings import hide_known_warnings

    hide_known_warnings()
