"""From arguments and YAML files to one configuration.

A file's settings become flags that stand before the user's own, so there is one syntax, one
precedence and one place that finds mistakes. Every mistake is found before any is reported.
"""

import os
import typing
from argparse import ArgumentError
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from cli.flags import ELSEWHERE, FLAGS, all_flags, plain_name
from cli.problems import did_you_mean, type_text
from cli.ranges import fits, names_in, ranges, without_ranges
from cli.settings import Setting, as_text

Configuration = dict[str, Any]


@dataclass(frozen=True)
class ClassGroup:
    """Flags read from a constructor or function signature."""

    key: str
    title: str
    callable: Callable[..., Any]
    skip: frozenset[str]
    names: tuple[str, ...] = ()  # what else could be chosen in its place
    others: tuple[str, ...] = ()  # given for its **kwargs, of which nothing says what they hold


def build_parser(groups: Sequence[ClassGroup], defaults: Mapping[str, str]) -> ArgumentParser:
    """The parser for one choice of network and data."""
    parser = ArgumentParser(
        prog="train.py",
        usage="python train.py [--name value ...]",
        description="Trains a classifier, tests it, and exports it in proven form.",
        exit_on_error=False,
        allow_abbrev=False,
        add_help=False,
    )
    for title, flags in FLAGS.items():
        group = parser.add_argument_group(title)
        for flag in flags:
            group.add_argument(
                f"--{flag.name}", type=flag.type, default=flag.default, help=flag.help
            )
    for class_group in groups:
        group = parser.add_argument_group(class_group.title)
        if class_group.key in defaults:
            names = ", ".join(class_group.names)
            group.add_argument(
                f"--{class_group.key}.name", type=str, default=defaults[class_group.key],
                help=f"which; --{class_group.key} NAME for short: {names}",
            )  # fmt: skip
        if class_group.key == "model":
            group.add_argument(
                "--model.checkpoint_activations",
                type=bool,
                default=False,
                help="recompute activations in the backward pass: less memory, more time",
            )
        add = (
            group.add_class_arguments
            if isinstance(class_group.callable, type)
            else group.add_function_arguments
        )
        skip: set[str | int] = set(class_group.skip)
        key, untyped = class_group.key, {"fail_untyped": False, "as_positional": False}
        add(class_group.callable, key, as_group=False, skip=skip, **untyped)
        for name in class_group.others:
            group.add_argument(f"--{name}", type=Any, help="for its **kwargs")
    return parser


@dataclass(frozen=True)
class Judged:
    """Settings that can be joined, and what is wrong with the others, a line each."""

    fine: list[Setting]
    wrong: list[str]  # unknown names, each with the nearest valid one, and values of a wrong type
    outside: list[str]  # numbers outside their range


def judge(parser: ArgumentParser, settings: Sequence[Setting]) -> Judged:
    """Looks at each setting for itself."""
    types, judged = known_types(parser), Judged([], [], [])
    given = {setting.name for setting in settings}
    for name in needed_by(parser):
        if name not in given:
            judged.wrong.append(f"--{name} must be given: {type_text(types[name])}")
    for setting in settings:
        name, hint = setting.name, types.get(setting.name)
        if name not in types:
            judged.wrong.append(setting.problem(f"unknown setting --{name}{nearest(name, types)}"))
            continue
        kind = type_text(without_ranges(hint))
        if setting.is_bare and "true or false" not in kind:
            judged.wrong.append(setting.problem(f"--{name} must be {kind}; got no value"))
            continue
        setting, value = list_of_one(parser, setting, hint), setting.value
        try:
            parsed = parser.parse_args([setting.argument], defaults=False)[name]
        except ArgumentError:
            near = did_you_mean(value, names_in(hint), cutoff=0.76)
            judged.wrong.append(setting.problem(f"--{name} must be {kind}; got {value!r}{near}"))
            continue
        if fits(parsed, hint):
            judged.fine.append(setting)
        else:
            text = f"--{name} must be {type_text(hint)}; got {value!r}"
            judged.outside.append(setting.problem(text))
    return judged


def needed_by(parser: ArgumentParser) -> list[str]:
    """Settings without a default; from now on the parser takes any one of them for itself."""
    actions = [action for action in parser._actions if action.required]
    for action in actions:
        action.required = False
    return [action.dest for action in actions]


def nearest(name: str, types: Collection[str]) -> str:
    """What may have been meant by an unknown name."""
    if name in ELSEWHERE and {ELSEWHERE[name], plain_name(ELSEWHERE[name])} & set(types):
        return f"; did you mean --{ELSEWHERE[name]}?"
    if members := members_of(name, types):
        return f"; it is a group: {members}"
    if near := did_you_mean(name, types, cutoff=0.75):
        return near.replace("mean ", "mean --")
    group, dot, _ = name.partition(".")
    members = members_of(group, types) if dot else ""
    return f"; there are {members}" if members else ""


def members_of(group: str, types: Collection[str]) -> str:
    """All flags of a group."""
    return ", ".join(f"--{known}" for known in types if known.startswith(f"{group}."))


def join(parser: ArgumentParser, settings: Sequence[Setting]) -> Configuration:
    """Settings that were judged fine, over the defaults."""
    return parser.parse_args([setting.argument for setting in settings]).as_dict()


def list_of_one(parser: ArgumentParser, setting: Setting, hint: Any) -> Setting:
    """A single value where a list is meant; any other setting as it is."""
    takes_list = any(typing.get_origin(one) is list for one in (hint, *typing.get_args(hint)))
    if not takes_list or setting.is_bare or _parses(parser, setting):
        return setting
    lists = [replace(setting, value=f"[{setting.value}]")] if setting.value.isdecimal() else []
    lists.append(replace(setting, value=as_text([setting.value])))
    return next((one for one in lists if _parses(parser, one)), setting)


def _parses(parser: ArgumentParser, setting: Setting) -> bool:
    try:
        parser.parse_args([setting.argument], defaults=False)
    except ArgumentError:
        return False
    return True


def known_types(parser: ArgumentParser) -> dict[str, Any]:
    """Every setting's type by name."""
    found = {}
    for action in parser._actions:  # argparse has no public list of its actions
        if action.dest != "help" and action.option_strings:
            hint = getattr(action, "_typehint", None) or action.type or str
            found[action.dest] = hint
    return found


def help_text(parser: ArgumentParser) -> str:
    """All flags; a range stands behind the explanation, not in the type. Parses nothing after."""
    for action in parser._actions:
        hint = getattr(action, "_typehint", None)
        if found := ranges(hint):
            action._typehint = without_ranges(hint)  # type: ignore[attr-defined]
            action.help = f"{action.help or ''} [{'; '.join(found)}]".lstrip()
    return parser.format_help()


def to_yaml(configuration: Configuration) -> str:
    """The configuration as a file that `--config` reads back."""
    return yaml.safe_dump(recorded(configuration), sort_keys=False, allow_unicode=True)


def recorded(configuration: Configuration) -> Configuration:
    """What describes the experiment, without what was to be done this time."""
    actions = ["config", "print_config", "resume", "test_only", "replay", "allow_changes", "debug"]
    actions.append("allow_external_code")  # no file may give this permission to itself
    return {n: to_primitive(value) for n, value in configuration.items() if n not in actions}


def to_primitive(value: Any) -> Any:
    """Paths and enumerations as text, tuples as lists, so that any file can hold them."""
    if isinstance(value, Mapping):
        return {name: to_primitive(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [to_primitive(item) for item in value]
    if isinstance(value, Enum):
        return value.name
    return str(value) if isinstance(value, os.PathLike) else value


def trainer_arguments(configuration: Configuration) -> Configuration:
    return {flag.name: configuration[flag.name] for flag in all_flags().values() if flag.trainer}
