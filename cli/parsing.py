"""From arguments and YAML files to one configuration.

A file's settings become flags that stand before the user's own, so there is one syntax, one
precedence and one place that finds mistakes. Every mistake is found before any is reported.
"""

import os
from argparse import ArgumentError
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from cli.flags import FLAGS, all_flags, plain_name
from cli.problems import UsageError, did_you_mean, type_text
from cli.ranges import fits, ranges, without_ranges
from cli.yaml_settings import NotSettings, as_text, entries_of, faults

Configuration = dict[str, Any]


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
    names: tuple[str, ...] = ()  # what else could be chosen in its place


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


def is_on(argv: Sequence[str], name: str) -> bool:
    """Whether a switch was given, known before anything else is."""
    try:
        return last_value(read_arguments(argv), name) == "true"
    except UsageError:
        return f"--{name}" in argv


def overridden(argv: Sequence[str]) -> list[str]:
    """A line for each flag that was given twice: the later one counts."""
    given = [s for s in read_arguments(argv) if s.name != "config"]
    last = {setting.name: setting.value for setting in given}
    return [
        f"--{s.name} {s.value} gives way to {last[s.name]}, which was given later"
        for s in given
        if s.value != last[s.name]
    ]


def read_file(path: str) -> list[Setting]:
    """Settings of a YAML file, nested or dotted.

    Raises:
        UsageError: The file is missing, is not YAML, is no mapping, or says something twice.
    """
    try:
        entries = entries_of(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError([f"--config {path}: {reason}"]) from error
    except NotSettings as error:
        raise UsageError([f"--config {path}: {error}"]) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UsageError([f"--config {path}: not valid YAML{line}"]) from error
    if problems := faults(entries):
        raise UsageError([f"--config {path}: {problem}" for problem in problems])
    return [Setting(plain_name(e.name), e.text, path) for e in entries if e.text is not None]


def settings_of(content: Mapping[str, Any], source: str) -> list[Setting]:
    """Flattens a checkpoint's values into settings; none may allow itself to run other code."""
    found = [Setting(plain_name(n), as_text(v), source) for n, v in flatten(content).items()]
    return [setting for setting in found if setting.name != "allow_external_code"]


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted name."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        is_group = isinstance(value, Mapping)
        found |= flatten(value, f"{prefix}{name}.") if is_group else {f"{prefix}{name}": value}
    return found


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
        add(class_group.callable, class_group.key, as_group=False, skip=set(class_group.skip))
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
    for setting in settings:
        name, hint = setting.name, types.get(setting.name)
        if name not in types:
            judged.wrong.append(setting.problem(f"unknown setting --{name}{nearest(name, types)}"))
            continue
        try:
            value = parser.parse_args([setting.argument], defaults=False)[name]
        except ArgumentError:
            got = "no value" if setting.value == "true" else repr(setting.value)
            wanted = type_text(without_ranges(hint))
            judged.wrong.append(setting.problem(f"--{name} must be {wanted}; got {got}"))
            continue
        if fits(value, hint):
            judged.fine.append(setting)
        else:
            wanted = type_text(hint)
            text = f"--{name} must be {wanted}; got {setting.value!r}"
            judged.outside.append(setting.problem(text))
    return judged


def nearest(name: str, types: Collection[str]) -> str:
    """What may have been meant by an unknown name."""
    inside = [f"--{known}" for known in types if known.startswith(f"{name}.")]
    if inside:
        return f"; it is a group: {', '.join(inside)}"
    return did_you_mean(name, types).replace("mean ", "mean --")


def parse(parser: ArgumentParser, settings: Sequence[Setting]) -> Configuration:
    """Checks every setting and joins them with the defaults.

    Raises:
        UsageError: All that is wrong.
    """
    judged = judge(parser, settings)
    if judged.wrong or judged.outside:
        raise UsageError(judged.wrong + judged.outside)
    return join(parser, judged.fine)


def join(parser: ArgumentParser, settings: Sequence[Setting]) -> Configuration:
    """Settings that were judged fine, over the defaults."""
    return parser.parse_args([setting.argument for setting in settings]).as_dict()


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
