"""Runs an entry point of a copy of the checkout in a process that has not imported the project.

The fork server has torch and Lightning loaded already, which makes such a process cheap.
"""

import contextlib
import multiprocessing
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRELOADED = ["torch", "pytorch_lightning", "torchmetrics", "jsonargparse", "onnxruntime"]


def copy_checkout(folder: Path) -> Path:
    """All files that git knows or would add, without the tests."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if not name.startswith("tests/") and (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    return folder


def run_in(folder: Path, script: str, arguments: Sequence[str], log: Path) -> int:
    """The exit code of `python SCRIPT ARGUMENTS` inside the folder; output goes to the log."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_run, args=(str(folder), script, list(arguments), str(log)))
    process.start()
    process.join(300)
    if process.is_alive():
        process.kill()
        raise TimeoutError(f"{script} {arguments} took more than 300 s")
    assert process.exitcode is not None
    return process.exitcode


def _run(folder: str, script: str, arguments: list[str], log: str) -> None:
    os.chdir(folder)
    ours = {path.name.removesuffix(".py") for path in ROOT.iterdir()}
    for name in [name for name in sys.modules if name.partition(".")[0] in ours - {"tests"}]:
        del sys.modules[name]
    sys.path[:] = [folder, *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    sys.argv = [script, *arguments]
    with (
        open(log, "w") as stream,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        runpy.run_path(script, run_name="__main__")
