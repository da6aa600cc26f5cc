"""Clean processes for exports and proofs.

An export can change what the next export in the same process produces (an LSTM freezes the length
of the one after it), and a crash or a hang must not take the other formats down. So each function
runs alone in a fresh child with a time limit. Where the system has a fork server, children start
from one that has torch and ONNX Runtime loaded but never exported anything; elsewhere each is
spawned.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

# what torch.export and torch.onnx load when they are called takes longer than a small export
PRELOADED = ["numpy", "torch", "onnx", "onnxruntime", "onnxscript"]
PRELOADED += ["torch._dynamo", "torch.export._trace"]
LAST_LINES = 12


class ChildError(RuntimeError):
    """A child failed; the text says how, in one line. `log` holds the end of what it printed."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.log = log


def start_server() -> None:
    """Begins to load the libraries that children share, while the caller does something else."""
    context = clean_context()
    if context.get_start_method() == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()


def clean_context() -> BaseContext:
    """forkserver where the system has it, else spawn; never a plain fork of a used process."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        return context
    return multiprocessing.get_context("spawn")


def run_child(function: Callable[..., Any], *arguments: Any, timeout: float, log: Path) -> Any:
    """Calls a module-level function in a fresh process and returns its picklable result.

    Args:
        function: Found again by its import path in the child.
        arguments: Picklable; plain values and paths.
        timeout: Seconds until the child is killed.
        log: File that receives everything the child prints.

    Raises:
        ChildError: The function raised, the process died, or the time was over.
    """
    context = clean_context()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(  # type: ignore[attr-defined]
        target=call_and_send, args=(sender, function, arguments, log), daemon=True
    )
    process.start()
    sender.close()
    try:
        if not receiver.poll(timeout):
            raise ChildError(f"took longer than {timeout:g} s and was stopped", last_lines(log))
        try:
            succeeded, answer = receiver.recv()
        except EOFError:
            process.join()
            raise ChildError(how_it_died(process.exitcode), last_lines(log)) from None
        if not succeeded:
            raise ChildError(answer, last_lines(log))
        return answer
    finally:
        receiver.close()
        stop(process)


def stop(process: Any) -> None:
    """Waits for a child that has answered; kills one that has not."""
    process.join(timeout=0.5)
    if process.is_alive():
        process.kill()
        process.join()
    process.close()


def how_it_died(exitcode: int | None) -> str:
    """The end of a process that sent no answer, in words."""
    if exitcode is not None and exitcode < 0:
        with suppress(ValueError):
            return f"the process was ended by {signal.Signals(-exitcode).name} (out of memory?)"
    return f"the process ended without an answer (exit code {exitcode})"


def call_and_send(
    sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...], log: Path
) -> None:
    """The child's main: output goes to the log, the result or the error to the parent."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        answer: tuple[bool, Any] = True, function(*arguments)
    except Exception as error:  # the border of a process: type, text and trace all travel on
        traceback.print_exc()
        answer = False, one_line(error)
    sys.stdout.flush()
    sys.stderr.flush()
    sender.send(answer)
    sender.close()


def one_line(error: BaseException) -> str:
    """First non-empty line of an error; the type too, where the text was not written for users."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, ValueError | FileNotFoundError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def last_lines(log: Path) -> str:
    """The end of a child's output."""
    if not log.is_file():
        return ""
    return "\n".join(log.read_text(errors="replace", encoding="utf-8").splitlines()[-LAST_LINES:])
