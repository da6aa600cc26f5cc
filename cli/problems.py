"""Mistakes of the user: collected, each with the nearest thing that would be right."""

import difflib
import errno
import linecache
import os
import sysconfig
import traceback
import types
import typing
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pytorch_lightning.utilities.exceptions import MisconfigurationException

PROJECT = Path(__file__).resolve().parents[1]
OURS = frozenset(  # what else lies in the checkout is somebody's own
    ["benchmarks", "callbacks", "cli", "datamodules", "exporters", "lightning_modules",
     "preprocessing", "tasks", "tests", "train.py", "export.py", "predict.py"]
)  # fmt: skip


class UsageError(Exception):
    """Bad arguments; the message holds one line a problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


def did_you_mean(wrong: str, valid: Iterable[str], cutoff: float = 0.6) -> str:
    """ "; did you mean X?", or nothing where nothing is near."""
    candidates = {name.lower(): name for name in valid}
    wrong = wrong.lower()
    near = difflib.get_close_matches(wrong, candidates, n=1, cutoff=cutoff)
    if not near:  # a flag may have been given without its group: --lr for --optimizer.lr
        near = [name for name in candidates if name.rpartition(".")[2] == wrong][:1]
    if not near:
        last_parts = {name.rpartition(".")[2]: name for name in candidates}
        best = difflib.get_close_matches(wrong.rpartition(".")[2], last_parts, n=1, cutoff=0.7)
        near = [last_parts[best[0]]] if best else []
    return f"; did you mean {candidates[near[0]]}?" if near else ""


def type_text(hint: Any) -> str:
    """A type hint in the words of a command line: `int or auto`."""
    if hint is type(None):
        return "null"
    if typing.get_origin(hint) is Literal:
        return ", ".join(str(value) for value in typing.get_args(hint))
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        parts = [type_text(part) for part in typing.get_args(hint)]
        return " or ".join(parts)
    if typing.get_origin(hint) is typing.Annotated:
        kind, *ranges = typing.get_args(hint)
        return " ".join([type_text(kind), *ranges])
    if typing.get_origin(hint) is not None:
        arguments = ", ".join(type_text(part) for part in typing.get_args(hint))
        return f"{typing.get_origin(hint).__name__} of {arguments}"
    names = {bool: "true or false", str: "text", float: "a number", int: "a whole number"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def report_of(error: BaseException, with_trace: bool = False) -> str:
    """An expected error, a line a problem; before it where it was raised, if asked for.

    Of any other error its trace alone.
    """
    is_expected = is_message(error)
    trace = traceback.format_exception(error) if with_trace or not is_expected else []
    problems = error.problems if isinstance(error, UsageError) else [text_of(error)]
    return "".join([*trace, *(f"error: {problem}\n" for problem in problems if is_expected)])


def text_of(error: BaseException) -> str:
    """An error's message; what the operating system says, with its place but not its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    text = f"the disk is full ({error.strerror})" if is_full else error.strerror
    return text if error.filename is None else f"{os.fsdecode(error.filename)}: {text}"


@contextmanager
def bad_arguments(*others: type[Exception]) -> Iterator[None]:
    """What a constructor refuses on purpose is a bad argument, also where it took the data to see.

    Args:
        others: Kinds of errors that are taken for one beside ValueError.

    Raises:
        UsageError: In its place.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, (ValueError, *others)) or not is_message(error):
            raise
        raise UsageError([text_of(error)]) from error


def is_message(error: BaseException) -> bool:
    """Whether an error was raised on purpose, so that its text says all a user needs.

    Others keep their trace: they are faults of this code, or of a network or data source that
    somebody is just writing.
    """
    if isinstance(error, UsageError):
        return True
    if isinstance(error, RuntimeError) and "deterministic implementation" in str(error):
        return True
    places = [(trace.f_code, line) for trace, line in traceback.walk_tb(error.__traceback__)]
    if any(is_users(code) for code, _ in places):
        return False
    if isinstance(error, (MisconfigurationException, OSError)):
        return True
    if not places or not isinstance(error, (ValueError, TypeError, RuntimeError)):
        return False
    code, line = places[-1]
    # a compiled function that fails has no frame of its own: look for the statement
    is_raised = linecache.getline(code.co_filename, line).lstrip().startswith("raise ")
    return is_ours(code.co_filename) and is_raised


def is_users(code: types.CodeType) -> bool:
    """Whether a frame is of somebody's own network, loss or data: outside of this project and of
    the libraries, or what only a network or a dataset has."""
    file = code.co_filename
    if is_ours(file):
        is_forward = code.co_name == "forward" and Path(file).name != "losses.py"  # which judges
        return is_forward or code.co_name == "__getitem__"
    is_library = "-packages" in file or file.startswith(("<", sysconfig.get_path("stdlib")))
    return not is_library


def is_ours(file: str) -> bool:
    """Whether a file is of this project."""
    path = Path(file).resolve()
    return path.is_relative_to(PROJECT) and path.relative_to(PROJECT).parts[0] in OURS
