"""Which classes a run is made of: by name, and which flags their constructors give."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch import nn

from cli.catalogue import catalogue, choices
from cli.flags import NAMED_GROUPS, all_flags
from cli.own_module import PROVIDED, module_class
from cli.parsing import ClassGroup, build_parser, known_types
from cli.problems import did_you_mean
from cli.settings import Setting, last_value, texts_of
from datamodules import DATAMODULES
from lightning_modules import MODULES
from lightning_modules.deployed import network_class, resolve_class
from lightning_modules.losses import FROM_DATA, LOSSES, loss_callable, positional
from lightning_modules.network_signature import NAMES, names_from_data, signature_of
from lightning_modules.networks import NETWORKS
from lightning_modules.optimizers import build_optimizer
from lightning_modules.schedules import Schedule

DEFAULTS = {
    "model": "small_cnn",
    "data": "digits",
    "loss": "cross_entropy",
    "module": "classifier",
}
CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # where a word begins
TABLES: dict[str, dict[str, str]] = {
    "model": NETWORKS,
    "data": DATAMODULES,
    "loss": LOSSES,
    "module": MODULES,
}
FIND: dict[str, Callable[[str, bool], Callable[..., Any]]] = {
    "model": network_class,
    "data": lambda name, external: resolve_class(DATAMODULES.get(name, name), external),
    "loss": loss_callable,
    "module": module_class,
}


def show_names(settings: Sequence[Setting]) -> None:
    """Answers `--model help` and its like.

    Raises:
        SystemExit: That was all that was wanted.
    """
    asked = [key for key in NAMED_GROUPS if last_value(settings, f"{key}.name") == "help"]
    for key in asked:
        if key in TABLES:
            print(catalogue(f"--{key}", TABLES[key]), end="")
        else:
            function: Callable[..., Any] = build_optimizer if key == "optimizer" else Schedule
            print(choices(f"--{key}", function), end="")
    if asked:
        raise SystemExit(0)


def default_experiment(data: str, model: str) -> str:
    """The name of the runs' folder; of an import path the class's name."""
    return "-".join(name.rpartition(".")[2] for name in (data, model))


def without_others(
    settings: Sequence[Setting], groups: Sequence[ClassGroup]
) -> tuple[list[Setting], list[str]]:
    """Leaves out what a file says of another network, or data source, than the chosen one.

    Only what the file's own one has and the chosen one has not: any other name is a mistake.

    Returns:
        The other settings, and a line for each file and group that names what was left out.
    """
    kept, notes = list(settings), []
    types = known_types(build_parser(groups, DEFAULTS))
    for key in [group.key for group in groups if group.key in NAMED_GROUPS]:
        chosen = last_value(settings, f"{key}.name") or DEFAULTS.get(key)
        foreign = [s for s in settings if s.source and s.name.startswith(f"{key}.")]
        foreign = [s for s in foreign if s.name not in types]
        for source in dict.fromkeys(s.source for s in foreign):
            until = max(at for at, s in enumerate(settings) if s.source == source) + 1
            own = last_value(settings[:until], f"{key}.name") or DEFAULTS.get(key)
            if own is None or own == chosen:
                continue
            own_name = Setting(f"{key}.name", own, source)
            permission = [s for s in settings if s.name == "allow_external_code"]
            own_groups = [g for g in class_groups([*permission, own_name], {})[0] if g.key == key]
            known = known_types(build_parser(own_groups, DEFAULTS))
            others = [s for s in foreign if s.source == source and s.name in known]
            kept = [s for s in kept if s not in others]
            if others:
                names = ", ".join(dict.fromkeys(s.name for s in others))
                notes.append(
                    f"left out, as --{key} {chosen} has no such settings: {names} ({source} is of "
                    f"{key} {own})"
                )
    return kept, notes


def meant_by(key: str, name: str) -> str:
    """What somebody may want who gives a file, or a network of torchvision, as a name."""
    if name.endswith(".py"):
        return "; did you mean an import path, such as lightning_modules.networks.my_file.MyClass?"
    if key == "data" and ("/" in name or Path(name).exists()):
        return f"; did you mean --data image_folder (or text_files) --data.root {name}?"
    if key == "model" and "torchvision" in NETWORKS:
        from torchvision import models  # loads slowly

        if name.lower() in models.list_models(module=models):
            return f"; did you mean --model torchvision --model.architecture {name.lower()}?"
    return ""


def class_groups(
    settings: Sequence[Setting], table: Mapping[str, Callable[..., Any]]
) -> tuple[list[ClassGroup], list[str]]:
    """The classes whose constructors give flags, and what is wrong with the chosen names.

    Args:
        settings: What was given.
        table: The callbacks that have flags.
    """
    external = last_value(settings, "allow_external_code") == "true"
    found, problems = {}, []
    for key, names in TABLES.items():
        name = last_value(settings, f"{key}.name") or DEFAULTS[key]
        if name not in names and ("." not in name or "/" in name):
            near = meant_by(key, name) or did_you_mean(name, names)
            problems.append(f"--{key} {name} is unknown{near} (available: {', '.join(names)})")
            continue
        try:
            found[key] = without_our_names(key, name, FIND[key](name, external))
        except ValueError as error:
            problems.append(f"--{key}: {error}")
    groups = []
    for key, chosen in found.items():
        name = last_value(settings, f"{key}.name") or DEFAULTS[key]
        title, skip = f"{key.title()} {name} (--{key} NAME)", frozenset({"seed"})
        others: tuple[str, ...] = ()
        if key == "model":
            determined = getattr(found.get("data"), "determines", NAMES)
            skip, others = network_flags(chosen, determined, settings, name)
        if key == "loss":
            skip = FROM_DATA if isinstance(chosen, type) else positional(chosen)
        if key == "module":
            skip = PROVIDED
        groups.append(ClassGroup(key, title, chosen, skip, tuple(TABLES[key]), others))
    groups += [
        ClassGroup("optimizer", "Optimizer", build_optimizer, frozenset({"module", "fused"})),
        ClassGroup("schedule", "Schedule", Schedule, frozenset({"optimizer", "total_steps"})),
    ]
    for key, make in table.items():
        title, given = f"Callback {key.replace('_', ' ')}", {"run", *all_flags()}
        made: Any = make
        if isinstance(make, partial):
            made, given = make.func, given | make.keywords.keys()
        groups.append(ClassGroup(key, title, made, frozenset(given)))
    named = own_callbacks(last_value(settings, "callbacks"))
    own, wrong = own_callback_groups(named, external, table)
    return groups + own, problems + wrong


def without_our_names(key: str, path: str, found: Callable[..., Any]) -> Callable[..., Any]:
    """What was found itself.

    Raises:
        ValueError: It has an argument whose flag means something else.
    """
    ours = ["name"] + ["checkpoint_activations"] * (key == "model")
    for name in ours:
        if name in inspect.signature(found).parameters:
            raise ValueError(
                f"{path!r} has an argument {name}, but --{key}.{name} is a flag of ours: give the "
                "argument another name, or write a function or class around it that has none"
            )
    return found


def own_callbacks(paths: str | Sequence[str] | None) -> list[tuple[str, str]]:
    """The name of each of the user's callbacks, whose flags begin with it, and its path."""
    paths = texts_of(paths) if isinstance(paths, str) else paths or []
    words = ((CAPITAL.sub("_", path.rpartition(".")[2]).lower(), path) for path in paths)
    return list(words)


def own_callback_groups(
    named: Sequence[tuple[str, str]], external: bool, others: Collection[str]
) -> tuple[list[ClassGroup], list[str]]:
    """The flags of the user's own callbacks, and what is wrong with them."""
    groups, problems = [], []
    taken = {*others, *NAMED_GROUPS, *all_flags()}
    for key, path in named:
        try:
            found = resolve_class(path, external)
        except ValueError as error:
            problems.append(f"--callbacks: {error}")
            continue
        if not issubclass(found, pl.Callback):
            problems.append(f"--callbacks: {path!r} is no pytorch_lightning.Callback")
        elif key in taken:
            problems.append(
                f"--callbacks: {path!r} would have the flags --{key}, which are taken; give the "
                "class another name"
            )
        else:
            groups.append(ClassGroup(key, f"Callback {path}", found, frozenset()))
        taken.add(key)
    return groups, problems


def network_flags(
    network: Callable[..., nn.Module],
    determined: Collection[str],
    settings: Sequence[Setting],
    name: str,
) -> tuple[frozenset[str], tuple[str, ...]]:
    """What of a network's arguments is no flag, and what was given for its `**kwargs`."""
    signature = signature_of(network)
    skip = names_from_data(signature, determined)
    if not signature.is_open:
        return skip, ()
    of_data = {f"model.{alias}" for aliases in NAMES.values() for alias in aliases}
    known = {"model.name", "model.checkpoint_activations", *of_data}
    known |= {f"model.{argument}" for argument in signature.arguments}
    # a file that is of another network means that one's settings
    sources = {s.source for s in settings if s.name == "model.name" and s.value == name} | {""}
    given = [s.name for s in settings if s.source in sources and s.name.startswith("model.")]
    return skip, tuple(dict.fromkeys(one for one in given if one not in known))
