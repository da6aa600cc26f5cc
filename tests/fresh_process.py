"""Runs a script in a process that has not imported the project, at a fraction of a cold start.

Such processes come from a fork server that has torch and Lightning loaded already. A few tests
start Python itself instead, to see what a user's first second looks like.
"""

import multiprocessing
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRELOADED = ["torch", "pytorch_lightning", "torchmetrics", "jsonargparse", "onnxruntime"]
PRELOADED += ["torchvision", "matplotlib.pyplot", "onnx", "onnxscript", "torch.export._trace"]
TIMEOUT = 300  # seconds


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


def run_script(
    script: str | Path,
    *arguments: object,
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """What `python SCRIPT ARGUMENTS` gives: exit code, output and errors, like `subprocess.run`.

    Args:
        script: Path of a file of a checkout, or of a script that imports one by PYTHONPATH.
        folder: The checkout; also the current folder.
        environment: Variables that are added.

    Raises:
        TimeoutError: It took too long, and was killed.
    """
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as scratch:
        streams = Path(scratch, "out"), Path(scratch, "err")
        process = fork_server().Process(
            target=_run, args=(folder, str(script), words, streams, dict(environment or {}))
        )
        process.start()
        process.join(TIMEOUT)
        if process.is_alive():
            process.kill()
            process.join()
        out, err = (stream.read_text(errors="replace") for stream in streams)
        if process.exitcode == -9:
            raise TimeoutError(f"{script} {words} took more than {TIMEOUT} s:\n{out}{err}")
        assert process.exitcode is not None
        return subprocess.CompletedProcess([str(script), *words], process.exitcode, out, err)


def fork_server() -> multiprocessing.context.ForkServerContext:
    """One a test process, shared with the exporters, which would otherwise start their own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _run(
    folder: Path,
    script: str,
    arguments: Sequence[str],
    streams: Sequence[Path],
    environment: Mapping[str, str],
) -> None:
    for number, stream in enumerate(streams, start=1):
        os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.chdir(folder)
    os.environ.update(environment)
    ours = {path.name.removesuffix(".py") for path in ROOT.iterdir()}
    for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
        del sys.modules[name]
    added = environment.get("PYTHONPATH", "").split(os.pathsep)
    others = [entry for entry in sys.path if entry not in ("", str(ROOT))]
    sys.path[:] = [str(Path(folder, script).parent), *filter(None, added), *others]
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
