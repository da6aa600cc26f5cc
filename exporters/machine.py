"""What this machine is: its CPU, on which INT8's speed and safe range depend, and its libraries."""

import importlib.metadata
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RELEVANT_FLAGS = (
    "avx2",
    "avx512f",
    "avx_vnni",
    "avx512_vnni",
    "amx_int8",
    "avx512_bf16",
    "asimddp",
    "i8mm",
    "sve",
)
IMPORTED_AS = {"pillow": "PIL"}  # others by their own name


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """Version by name; what is not installed is left out."""
    found = {name: library_version(name) for name in names}
    return {name: version for name, version in found.items() if version is not None}


def library_version(name: str) -> str | None:
    """Of the package itself, or of another one that gives the same module, as onnxruntime-gpu."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        module = IMPORTED_AS.get(name, name.replace("-", "_"))
    for other in importlib.metadata.packages_distributions().get(module, ()):
        return f"{importlib.metadata.version(other)} ({other})"
    return None


def cpu_flags() -> list[str]:
    """The instruction sets that matter here; empty where the system does not list them."""
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return []
    for line in path.read_text(errors="replace", encoding="utf-8").splitlines():
        if line.lower().startswith(("flags", "features")):
            found = set(line.split(":", 1)[1].split())
            return [flag for flag in RELEVANT_FLAGS if flag in found]
    return []


def has_vnni() -> bool:
    """Whether 8-bit products add up without saturation; an x86 that does not say counts as no."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686"):
        return True
    return bool({"avx_vnni", "avx512_vnni"} & set(cpu_flags()))


def usable_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_machine() -> dict[str, Any]:
    """For the manifest: latencies and the recommendation hold for this machine."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpu_flags": cpu_flags(),
        "cpus": usable_cpus(),
        "python": platform.python_version(),
    }
