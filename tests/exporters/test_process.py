"""Clean child processes: results, errors, crashes and time limits all come back."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporters.process import ChildError, run_child

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def answer(value: int) -> tuple[int, int]:
    print("a line for the log")
    return value + 1, os.getpid()


def imports_torch() -> tuple[bool, bool]:
    return "torch" in sys.modules, "pytorch_lightning" in sys.modules


def raise_for_user() -> None:
    raise ValueError("\nthe checkpoint is of another network\nmore\n")


def raise_bug() -> None:
    print("before the fault")
    raise KeyError("missing")


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    os._exit(7)


def sleep() -> None:
    time.sleep(60)


def test_results_come_from_another_process(tmp_path: Path) -> None:
    first, child = run_child(answer, 1, timeout=60, log=tmp_path / "log")
    assert (first, child != os.getpid()) == (2, True)
    assert (tmp_path / "log").read_text() == "a line for the log\n"
    _, other = run_child(answer, 1, timeout=60, log=tmp_path / "log")
    assert other != child


def test_children_have_torch_but_not_lightning(tmp_path: Path) -> None:
    """Asked in an interpreter of its own: here, other tests may have started a server before."""
    script = f"""
from pathlib import Path
from exporters.process import run_child, start_server
from tests.exporters.test_process import imports_torch
if __name__ == "__main__":
    start_server()
    print(run_child(imports_torch, timeout=60, log=Path({str(tmp_path / "log")!r})))
"""
    (tmp_path / "ask.py").write_text(script)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, str(tmp_path / "ask.py")], capture_output=True, text=True, env=environment
    )
    assert result.stdout == "(True, False)\n", result.stderr


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (raise_for_user, "^the checkpoint is of another network$"),
        (raise_bug, "^KeyError: 'missing'$"),
        (crash, r"ended by SIGSEGV"),
        (leave, r"without an answer \(exit code 7\)"),
    ],
)
def test_failures_are_one_line(tmp_path: Path, function: object, reason: str) -> None:
    with pytest.raises(ChildError, match=reason) as caught:
        run_child(function, timeout=60, log=tmp_path / "log")
    if function is raise_bug:
        assert "before the fault" in caught.value.log
        assert "Traceback" in caught.value.log


def test_a_hanging_child_is_stopped(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(ChildError, match="took longer than 0.5 s and was stopped"):
        run_child(sleep, timeout=0.5, log=tmp_path / "log")
    assert time.monotonic() - start < 30
