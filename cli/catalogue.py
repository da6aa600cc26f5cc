"""What `--model help` and its like print: every name with one line.

The files are read, not imported: one that is broken does not hide the others.
"""

import ast
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]


def catalogue(flag: str, table: Mapping[str, str]) -> str:
    """A line a name, and how to go on."""
    width = max(map(len, table), default=0)
    modules = [path.rpartition(".")[0] for path in table.values()]
    lines = []
    for name, path in table.items():
        is_alone = modules.count(path.rpartition(".")[0]) == 1
        lines.append(f"  {name:{width}}  {first_sentence(path, is_alone)}".rstrip())
    own = f"python train.py {flag} NAME --help lists the flags of one"
    return "\n".join([f"{flag} NAME:", *lines, own, ""])


def choices(flag: str, function: Callable[..., Any]) -> str:
    """The names that a function's `name` takes, and what its docstring says of them."""
    names = typing.get_args(inspect.signature(function).parameters["name"].annotation)
    arguments = (inspect.getdoc(function) or "").partition("Args:")[2]
    found = re.search(r"^ +name: (.*?)(?=^ +\w+: |\n\n|\Z)", arguments, re.DOTALL | re.MULTILINE)
    text = " ".join(found[1].split()) if found else ""
    return f"{flag} NAME: {', '.join(names)}\n  {text}\n"


def first_sentence(path: str, is_alone: bool) -> str:
    """What the file of a class says first, or the class where it shares its file with others."""
    module, _, class_name = path.rpartition(".")
    try:
        source = (PROJECT / Path(*module.split("."))).with_suffix(".py").read_bytes()
        tree: ast.Module | ast.ClassDef = ast.parse(source)
    except (OSError, SyntaxError, ValueError) as error:
        return f"({type(error).__name__} in {module})"
    if not is_alone:
        tree = next(
            (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_name), tree
        )
    paragraph = (ast.get_docstring(tree) or "").partition("\n\n")[0]
    sentence = re.split(r"\. (?=[A-Z])", " ".join(paragraph.split()))[0]  # not at "et al. 2015"
    return sentence.removesuffix(".")
