"""From arguments and YAML files to one configuration.

A file's settings become flags that stand before the user's own, so there is one syntax, one
precedence and one place that finds mistakes. Every mistake is found before any is reported.
"""

import os
import typing
from argparse import ArgumentError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from cli.flags import FLAGS, all_flags
from cli.problems import UsageError, did_you_mean, type_text

Configuration = dict[str, Any]
NAMED_GROUPS = ("model", "data")


@dataclass(frozen=True)
class Setting:
    """One `name=value`, and where it was written."""

    name: str
    value: str
    source: str

    @property
    def argument(self) -> str:
        return f"--{self.name}={self.value}"

    def problem(self, text: str) -> str:
        return f"{self.source}: {text}" if self.source else text


@dataclass(frozen=True)
class ClassGroup:
    """Flags read from a constructor or function signature."""

    key: str
    title: str
    callable: Callable[..., Any]
    skip: frozenset[str]


def read_arguments(argv: Sequence[str]) -> list[Setting]:
    """Turns an argument list into settings; `--flag` without a value means true.

    Raises:
        UsageError: Words that belong to no flag.
    """
    settings, problems, position = [], [], 0
    while position < len(argv):
        word = "--help" if argv[position] == "-h" else argv[position]
        position += 1
        if not word.startswith("--") or word == "--":
            problems.append(f"unexpected argument {word!r}: settings are given as --name value")
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = "true"
            if position < len(argv) and not argv[position].startswith("--"):
                value = argv[position]
                position += 1
        settings.append(Setting(plain_name(name), value, ""))
    if problems:
        raise UsageError(problems)
    return settings


def read_file(path: str) -> list[Setting]:
    """Settings of a YAML file, nested or dotted.

    Raises:
        UsageError: The file is missing, is not YAML, or is no mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            # a few lines of them can stand for more settings than fit into memory
            raise UsageError([f"--config {path}: references (*name) are not accepted"])
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError([f"--config {path}: {reason}"]) from error
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UsageError([f"--config {path}: not valid YAML{line}"]) from error
    if content is None:
        return []
    if not isinstance(content, Mapping):
        raise UsageError([f"--config {path}: expected 'name: value' lines"])
    return settings_of(content, path)


def settings_of(content: Mapping[str, Any], source: str) -> list[Setting]:
    """Flattens nested values into settings; no file may allow itself to run other code."""
    found = [Setting(plain_name(n), as_text(v), source) for n, v in flatten(content).items()]
    return [setting for setting in found if setting.name != "allow_external_code"]


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted name."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        is_group = isinstance(value, Mapping)
        found |= flatten(value, f"{prefix}{name}.") if is_group else {f"{prefix}{name}": value}
    return found


def as_text(value: Any) -> str:
    """A value as it would be given on the command line."""
    if isinstance(value, str):
        return value
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"))
    return text.removesuffix("\n").removesuffix("\n...")


def plain_name(name: str) -> str:
    """`model` and `data` are short for `model.name` and `data.name`."""
    return f"{name}.name" if name in NAMED_GROUPS else name


def last_value(settings: Sequence[Setting], name: str, default: str | None = None) -> str | None:
    """What the last setting of that name says; null is as good as none."""
    values = [setting.value for setting in settings if setting.name == name]
    return values[-1] if values and values[-1] != "null" else default


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
        if class_group.key in NAMED_GROUPS:
            group.add_argument(
                f"--{class_group.key}.name", type=str, default=defaults[class_group.key],
                help=f"which; --{class_group.key} NAME for short",
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
        add(class_group.callable, class_group.key, as_group=False, skip=set(class_group.skip))
    return parser


def parse(parser: ArgumentParser, settings: Sequence[Setting]) -> Configuration:
    """Checks every setting and joins them with the defaults.

    Raises:
        UsageError: Each unknown name with the nearest valid one, each value of a wrong type.
    """
    types = known_types(parser)
    problems = []
    settings = [list_of_one(parser, setting, types.get(setting.name)) for setting in settings]
    for setting in settings:
        if setting.name not in types:
            near = did_you_mean(setting.name, types).replace("mean ", "mean --")
            problems.append(setting.problem(f"unknown setting --{setting.name}{near}"))
        elif not _parses(parser, setting):
            wanted = type_text(types[setting.name])
            got = "no value" if setting.value == "true" else repr(setting.value)
            problems.append(setting.problem(f"--{setting.name} must be {wanted}; got {got}"))
    if problems:
        raise UsageError(problems)
    return parser.parse_args([setting.argument for setting in settings]).as_dict()


def list_of_one(parser: ArgumentParser, setting: Setting, hint: Any) -> Setting:
    """A single value where a list is meant; any other setting as it is."""
    takes_list = any(typing.get_origin(one) is list for one in (hint, *typing.get_args(hint)))
    if not takes_list or setting.value == "true" or _parses(parser, setting):
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


def to_yaml(configuration: Configuration) -> str:
    """The configuration as a file that `--config` reads back."""
    return yaml.safe_dump(recorded(configuration), sort_keys=False, allow_unicode=True)


def recorded(configuration: Configuration) -> Configuration:
    """What describes the experiment, without what was to be done this time."""
    actions = ["config", "print_config", "resume", "test_only", "replay", "allow_changes"]
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
