"""Mistakes of the user: collected, each with the nearest thing that would be right."""

import difflib
import errno
import linecache
import os
import sys
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


def tell(error: BaseException, with_trace: bool) -> None:
    """Prints an expected error, a line a problem; before it where it was raised, if asked for."""
    if with_trace:
        traceback.print_exception(error)
    problems = error.problems if isinstance(error, UsageError) else [text_of(error)]
    print(*(f"error: {problem}" for problem in problems), sep="\n", file=sys.stderr)


def text_of(error: BaseException) -> str:
    """An error's message; what the operating system says, with its place but not its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    text = f"the disk is full ({error.strerror})" if is_full else error.strerror
    return text if error.filename is None else f"{os.fsdecode(error.filename)}: {text}"


@contextmanager
def bad_arguments() -> Iterator[None]:
    """What a constructor refuses on purpose is a bad argument, also where it took the data to see.

    Raises:
        UsageError: In its place.
    """
    try:
        yield
    except ValueError as error:
        if not is_message(error):
            raise
        raise UsageError([str(error)]) from error


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
        return code.co_name in ("forward", "__getitem__")
    is_library = "-packages" in file or file.startswith(("<", sysconfig.get_path("stdlib")))
    return not is_library


def is_ours(file: str) -> bool:
    """Whether a file is of this project; its environment may lie inside."""
    return Path(file).resolve().is_relative_to(PROJECT) and "-packages" not in file
