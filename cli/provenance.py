"""Which code, libraries and machine a run and its checkpoints come from."""

import subprocess
from pathlib import Path
from typing import Any

from exporters.machine import library_versions as installed

PROJECT = Path(__file__).resolve().parents[1]


def library_versions() -> dict[str, str]:
    """Version by package name."""
    return installed(("torch", "pytorch-lightning", "torchmetrics", "numpy"))


def git_commit() -> str | None:
    """The commit this code is at, with "-dirty" where files differ from it."""
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def start_line(configuration: dict[str, Any], model: Any, trainer: Any) -> str:
    """What is trained on what, in one line."""
    parameters = sum(p.numel() for p in model.parameters())
    return (
        f"{configuration['model']['name']} ({parameters:,} parameters) on "
        f"{configuration['data']['name']}, {trainer.world_size} x "
        f"{trainer.strategy.root_device.type}, precision {trainer.precision}, "
        f"seed {configuration['seed']}"
    )
