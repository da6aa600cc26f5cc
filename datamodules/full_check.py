"""What the checks of images and texts that read every file share: a progress bar and a memory."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from datamodules.cache_folder import build_once
from datamodules.findings import Finding, error, warning

CHECK_FORMAT = 2  # raise it whenever a full check looks for something else


def shown(items: Iterable[Any], total: int) -> Iterable[Any]:
    """The items, with a progress bar where somebody looks."""
    console = Console(stderr=True)
    off = not console.is_terminal
    return track(items, "data check", total, console=console, transient=True, disable=off)


def remembered(folder: Path, look: Callable[[], dict[str, list[str]]]) -> list[Finding]:
    """The "errors" and "warnings" of a check that takes long, from the cache where it was made."""

    def build(target: Path) -> None:
        (target / "report.json").write_text(json.dumps(look()), encoding="utf-8")

    report = json.loads((build_once(folder, build) / "report.json").read_text(encoding="utf-8"))
    return [*map(error, report.get("errors", ())), *map(warning, report["warnings"])]
