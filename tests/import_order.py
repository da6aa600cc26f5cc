"""The order of the tree: which part may import which, and what may be imported when.

Files are parsed, never run, so that a lazy import, one under `if TYPE_CHECKING` and one by
`importlib.import_module("name")` count too. Each rule is a function of a root folder that returns
its violations as sentences; test_imports.py tries it on this project and on trees that break it.
"""

from __future__ import annotations

import ast
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# An area is a package; `networks`, inside lightning_modules, what of exporters is copied into every
# bundle, and what callbacks share (they do not know each other) are areas of their own.
COPIED_NAMES = ("answers.py", "bundle_files.py", "command_line.py", "runtime.py")
COPIED = {PurePosixPath("exporters", name) for name in COPIED_NAMES}
# what callbacks share, who do not know each other: what they see of a run and of a module, the
# place in training, and how gradients and losses are looked at
CONTRACT_NAMES = ("module_contract.py", "place.py", "run_contract.py", "logged_names.py")
CONTRACT_NAMES += ("finite_differences.py", "first_non_finite.py", "gradient_norms.py")
CONTRACTS = {PurePosixPath("callbacks", name) for name in CONTRACT_NAMES}
ENTRIES = ("train.py", "export.py", "predict.py")
BELOW = {
    "tasks",
    "callbacks",
    "contracts",
    "lightning_modules",
    "networks",
    "datamodules",
    "exporters",
    "runtime",
    "preprocessing",
    "ops",
}
MAY_IMPORT: dict[str, set[str]] = {
    "entry": BELOW | {"cli"},
    "cli": BELOW | {"cli"},
    "callbacks": {"contracts", "preprocessing", "tasks"},
    "contracts": {"contracts", "preprocessing", "tasks"},
    "lightning_modules": {"lightning_modules", "networks", "preprocessing", "tasks"},
    "networks": {"ops"},
    "datamodules": {"datamodules", "preprocessing", "tasks"},
    "exporters": {"exporters", "runtime", "preprocessing", "tasks"},
    "runtime": {"runtime", "preprocessing", "tasks"},
    "preprocessing": {"preprocessing"},
    "tasks": {"tasks"},
    "ops": {"ops"},
    "benchmarks": BELOW | {"benchmarks", "cli", "entry"},
    "tests": BELOW | {"tests", "cli", "entry"},
}

# What a bundle needs, and therefore all that the parts copied into it may import.
BUNDLE_NEEDS = {"numpy", "PIL", "tokenizers", "onnxruntime"}
# Their __init__.py is read for names, by every start and by --help.
LIGHT = {"callbacks", "lightning_modules", "networks", "datamodules", "exporters", "cli", "ops"}
LIGHT |= {"tasks"}
COPIED_AREAS = ("runtime", "preprocessing", "tasks")  # into bundles
# What costs seconds to import or is optional: imported where it is used.
HEAVY = {"matplotlib", "onnx", "onnxruntime", "onnxscript", "tensorboard", "torchao", "wandb"}
# What train.py loads when it starts, or by a name that a flag gives.
STARTS_WITH = {"cli", "callbacks", "lightning_modules", "networks", "datamodules"}
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}


@dataclass(frozen=True)
class Import:
    """One imported module: `name` is dotted; `lazy` unless it happens when the file is imported."""

    line: int
    name: str
    lazy: bool


def python_files(root: Path) -> list[PurePosixPath]:
    """Every Python file of the project, relative to root; not what runs and environments hold."""
    found: list[PurePosixPath] = []
    for folder, subfolders, names in os.walk(root):
        here = Path(folder).relative_to(root)
        if here == Path():
            subfolders[:] = [name for name in subfolders if name not in ("runs", "data", "build")]
        subfolders[:] = [
            name
            for name in subfolders
            if not name.startswith(".") and not (Path(folder) / name / "pyvenv.cfg").exists()
        ]
        found += [PurePosixPath(here.as_posix()) / name for name in names if name.endswith(".py")]
    return sorted(found)


def area(path: PurePosixPath) -> str | None:
    """The area of a file; None for a place that the tree does not have."""
    if path.parts[:2] == ("lightning_modules", "networks"):
        return "networks"
    if path in COPIED:
        return "runtime"
    if path in CONTRACTS:
        return "contracts"
    if len(path.parts) == 1:
        return "entry" if path.name in ENTRIES else None
    return path.parts[0] if path.parts[0] in MAY_IMPORT else None


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def import_nodes(node: ast.AST, lazy: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """The statements and calls that import, each with whether it is lazy."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom | ast.Call):
            yield child, lazy
        if isinstance(child, ast.If) and is_type_checking(child.test):
            for statement in child.body:
                yield from import_nodes(ast.Module([statement], []), lazy=True)
            for statement in child.orelse:
                yield from import_nodes(ast.Module([statement], []), lazy)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from import_nodes(child, lazy or inside)


def names_imported(node: ast.AST, path: PurePosixPath) -> list[str]:
    """Dotted names; `from a import b` gives `a.b`, which may be a module or something in `a`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        package = path.parts[: len(path.parts) - node.level] if node.level else ()
        base = ".".join([*package, *([node.module] if node.module else [])])
        return [f"{base}.{alias.name}" for alias in node.names]
    assert isinstance(node, ast.Call)
    function = ast.unparse(node.func)
    first = node.args[0] if node.args else None
    if function in ("__import__", "import_module", "importlib.import_module") and (
        isinstance(first, ast.Constant) and isinstance(first.value, str)
    ):
        return [first.value]
    return []


def imports(root: Path, path: PurePosixPath) -> list[Import]:
    tree = ast.parse((root / path).read_bytes(), filename=str(path))
    return [
        Import(node.lineno, name, lazy)  # type: ignore[attr-defined]
        for node, lazy in import_nodes(tree)
        for name in names_imported(node, path)
    ]


def file_of(root: Path, name: str) -> PurePosixPath | None:
    """The file of this project that importing `name` runs; None for other people's modules."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = PurePosixPath(*parts[:length])
        for path in (module.with_suffix(".py"), module / "__init__.py"):
            if (root / path).is_file():
                return path
    if (root / parts[0]).is_dir() and parts[0] in MAY_IMPORT:
        return PurePosixPath(parts[0], "__init__.py")
    return None


def arrow_violations(root: Path) -> list[str]:
    """Imports between parts of the project that the tree's arrows do not have."""
    found = []
    for path in python_files(root):
        here = area(path)
        if here is None:
            found.append(f"{path} has no place in the tree")
            continue
        for imported in imports(root, path):
            target = file_of(root, imported.name)
            if target is None or target == path:
                continue
            there = area(target)
            if there not in MAY_IMPORT[here]:
                allowed = ", ".join(sorted(MAY_IMPORT[here])) or "nothing"
                found.append(
                    f"{path}:{imported.line} imports {target}; {here} may import {allowed}"
                )
    return found


def package_violations(root: Path) -> list[str]:
    """Packages where they do not belong, and an __init__.py that imports more than the library."""
    found = []
    for path in python_files(root):
        for imported in imports(root, path):
            package = imported.name.partition(".")[0]
            place = f"{path}:{imported.line} imports {package}"
            if package in ("lightning", "lightning_fabric"):
                found.append(f"{place}; the package here is pytorch_lightning")
            if package in sys.stdlib_module_names:
                continue
            if path.name == "__init__.py" and area(path) in LIGHT and not imported.lazy:
                found.append(f"{place}; this __init__.py is a plain dict or empty")
            ours = file_of(root, imported.name) is not None
            if area(path) in COPIED_AREAS and package not in BUNDLE_NEEDS and not ours:
                found.append(f"{place}; a bundle has only {', '.join(sorted(BUNDLE_NEEDS))}")
    return found


def loaded_at_start(root: Path) -> set[PurePosixPath]:
    """The project's files that train.py imports when it starts, or by a name that a flag gives."""
    waiting = [path for path in python_files(root) if area(path) in STARTS_WITH]
    waiting.append(PurePosixPath("train.py"))
    seen: set[PurePosixPath] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not (root / path).is_file():
            continue
        seen.add(path)
        waiting += [parent / "__init__.py" for parent in path.parents if parent.name]
        for imported in imports(root, path):
            target = file_of(root, imported.name)
            if target is not None and not imported.lazy:
                waiting.append(target)
    return seen


def heavy_violations(root: Path) -> list[str]:
    """Heavy packages that every start of train.py would pay for."""
    return [
        f"{path}:{imported.line} imports {imported.name.partition('.')[0]} when train.py starts; "
        "import it in the function that uses it"
        for path in sorted(loaded_at_start(root))
        for imported in imports(root, path)
        if not imported.lazy and imported.name.partition(".")[0] in HEAVY
    ]


def name_violations(root: Path) -> list[str]:
    """Base names that stand twice; an entry file may share its with its part and its benchmark."""
    places = defaultdict(list)
    for path in python_files(root):
        measures = area(path) == "benchmarks" and path.name in ENTRIES
        if area(path) != "tests" and path.name != "__init__.py" and not measures:
            places[path.name].append(path)
    found = []
    for name, paths in sorted(places.items()):
        if len(paths) > (2 if PurePosixPath(name) in paths and name in ENTRIES else 1):
            found.append(f"{name} is the name of {', '.join(map(str, paths))}")
        if PurePosixPath(name).stem in VAGUE_NAMES:
            found.append(f"{paths[0]} says nothing about what is in it")
    return found
