"""Which code and which libraries a checkpoint comes from."""

import subprocess
from importlib.metadata import version
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]


def library_versions() -> dict[str, str]:
    """Version by package name."""
    return {name: version(name) for name in ("torch", "pytorch-lightning", "torchmetrics", "numpy")}


def git_commit() -> str | None:
    """The commit this code is at, with "-dirty" where files differ from it."""
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None
