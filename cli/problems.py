"""Mistakes of the user: collected, each with the nearest thing that would be right."""

import difflib
import linecache
import sysconfig
import traceback
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pytorch_lightning.utilities.exceptions import MisconfigurationException

PROJECT = Path(__file__).resolve().parents[1]


class UsageError(Exception):
    """Bad arguments; the message holds one line a problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


def did_you_mean(wrong: str, valid: Iterable[str]) -> str:
    """ "; did you mean X?", or nothing where nothing is near."""
    candidates = list(valid)
    near = difflib.get_close_matches(wrong, candidates, n=1, cutoff=0.6)
    if not near:  # a flag may have been given without its group: --lr for --optimizer.lr
        near = [name for name in candidates if name.rpartition(".")[2] == wrong][:1]
    if not near:
        last_parts = {name.rpartition(".")[2]: name for name in candidates}
        best = difflib.get_close_matches(wrong.rpartition(".")[2], last_parts, n=1, cutoff=0.7)
        near = [last_parts[best[0]]] if best else []
    return f"; did you mean {near[0]}?" if near else ""


def type_text(hint: Any) -> str:
    """A type hint in the words of a command line: `int or auto`."""
    if hint is type(None):
        return "null"
    if typing.get_origin(hint) is Literal:
        return ", ".join(str(value) for value in typing.get_args(hint))
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        parts = [type_text(part) for part in typing.get_args(hint)]
        return " or ".join(parts)
    if typing.get_origin(hint) is not None:
        arguments = ", ".join(type_text(part) for part in typing.get_args(hint))
        return f"{typing.get_origin(hint).__name__} of {arguments}"
    names = {bool: "true or false", str: "text", float: "a number", int: "a whole number"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def is_message(error: BaseException) -> bool:
    """Whether an error was raised on purpose, so that its text says all a user needs.

    Others keep their trace: they are faults of this code, or of a network or data source that
    somebody is just writing.
    """
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
