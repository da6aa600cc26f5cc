"""What was written where: the words of a command line, YAML files and checkpoints as flat settings.

A file's settings become flags that stand before the user's own, so there is one syntax, one
precedence and one place that finds mistakes. Every value stays as it was written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from cli.flags import NAMED_GROUPS, plain_name
from cli.problems import UsageError

COMMAND_LINE_ONLY = {
    "allow_external_code": "add --allow_external_code, no file may give itself this permission",
    "config": "give --config FILE for each, the later wins",
    "help": "python train.py --help",
}
PURPOSES = ("test_only", "replay", "resume")  # what can be done with a checkpoint
NOT_BARE = {"config": "a YAML file", "resume": "auto or a checkpoint",
            "test_only": "a checkpoint", "replay": "a replay file"}  # fmt: skip
NOT_BARE |= {f"{key}.name": "a name, or help" for key in NAMED_GROUPS}


@dataclass(frozen=True)
class Setting:
    """One `name=value`, and where it was written."""

    name: str
    value: str
    source: str
    is_bare: bool = False  # given without a value, which then is true

    @property
    def argument(self) -> str:
        return f"--{self.name}={self.value}"

    def problem(self, text: str) -> str:
        return f"{self.source}: {text}" if self.source else text


class NotSettings(ValueError):
    """YAML, but something else than `name: value` lines."""


# ---- the command line ---------------------------------------------------------------------


def read_arguments(argv: Sequence[str]) -> list[Setting]:
    """Turns an argument list into settings; `--flag` without a value means true.

    Raises:
        UsageError: Words that belong to no flag.
    """
    settings: list[Setting] = []
    problems, takes_value = [], False
    for word in argv:
        if word.startswith("--") and word != "--" or word == "-h":
            name, equals, value = ("--help" if word == "-h" else word)[2:].partition("=")
            takes_value = not equals
            settings.append(Setting(plain_name(name), value if equals else "true", "", not equals))
        elif takes_value:
            settings[-1], takes_value = replace(settings[-1], value=word, is_bare=False), False
        else:
            problems.append(f"unexpected argument {word!r}: settings are given as --name value")
    if problems:
        raise UsageError(problems)
    return settings


def is_on(argv: Sequence[str], name: str) -> bool:
    """Whether a switch was given, known before anything else is."""
    try:
        return last_value(read_arguments(argv), name) == "true"
    except UsageError:
        return f"--{name}" in argv


def joined(settings: Sequence[Setting], name: str) -> list[Setting]:
    """Those of one name as one list, where the last of them stands."""
    values = [one for s in settings if s.name == name for one in texts_of(s.value)]
    last = max((at for at, s in enumerate(settings) if s.name == name), default=None)
    kept = [s for at, s in enumerate(settings) if s.name != name or at == last]
    is_list = len(values) > 1
    return [replace(s, value=as_text(values)) if s.name == name and is_list else s for s in kept]


def overridden(argv: Sequence[str]) -> list[str]:
    """A line for each flag that was given twice: the later one counts."""
    given = [s for s in read_arguments(argv) if s.name not in ("config", "callbacks")]
    last = {setting.name: setting.value for setting in given}
    return [
        f"--{s.name} {s.value} gives way to {last[s.name]}, which was given later"
        for s in given
        if s.value != last[s.name]
    ]


def check_given(settings: Sequence[Setting]) -> None:
    """Names of files and classes are read before all else, and `true` is none.

    Raises:
        UsageError: A flag stands there without one, or several things are asked for of which only
            one can be done.
    """
    problems = [
        f"--{s.name.removesuffix('.name')} needs {NOT_BARE[s.name]}"
        for s in settings
        if s.is_bare and s.name in NOT_BARE
    ]
    asked = [f"--{name}" for name in PURPOSES if last_value(settings, name)]
    if len(asked) > 1 and not problems:
        problems = [f"{' and '.join(asked)} exclude each other: give one of them"]
    if problems:
        raise UsageError(problems)


def last_value(settings: Sequence[Setting], name: str, default: str | None = None) -> str | None:
    """What the last setting of that name says; null is as good as none."""
    values = [setting.value for setting in settings if setting.name == name]
    return values[-1] if values and values[-1] != "null" else default


# ---- files --------------------------------------------------------------------------------


def read_files(settings: Sequence[Setting]) -> list[Setting]:
    """The settings of all files that --config names, in their order.

    Raises:
        UsageError: What is wrong with any of them.
    """
    found, problems = [], []
    for path in [setting.value for setting in settings if setting.name == "config"]:
        try:
            found += read_file(path)
        except UsageError as error:
            problems += error.problems
    if problems:
        raise UsageError(problems)
    return found


def read_file(path: str) -> list[Setting]:
    """Settings of a YAML file, nested or dotted.

    Raises:
        UsageError: The file is missing, is not YAML, is no mapping, or says something twice.
    """
    try:
        entries = entries_of(Path(path).read_text(encoding="utf-8"))
        problems = faults(entries)
    except (OSError, UnicodeDecodeError) as error:
        problems = [f"{getattr(error, 'strerror', None) or 'not UTF-8 text'}{near_file(path)}"]
    except NotSettings as error:
        problems = [str(error)]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        problems = ["not valid YAML" + (f" at line {where.line + 1}" if where else "")]
    if problems:
        raise UsageError(f"--config {path}: {problem}" for problem in problems)
    return [Setting(plain_name(name), text, path) for name, text, _ in entries if text is not None]


def near_file(path: str) -> str:
    """A configuration of the project that may have been meant by its bare name."""
    shipped = Path("configs", Path(path).name).with_suffix(".yaml")
    return f"; did you mean {shipped}?" if shipped.is_file() and shipped != Path(path) else ""


Entry = tuple[str, str | None, int]  # dotted name; value, None for a group; line, from 1


def entries_of(text: str) -> list[Entry]:
    """The values of a file in their order, a group's name before what is in it.

    Raises:
        yaml.YAMLError: It is not YAML, or holds more than plain values.
        NotSettings: It has references, or is no mapping.
    """
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
        # a few lines of them can stand for more settings than fit into memory
        raise NotSettings("references (*name) are not accepted")
    loader = yaml.SafeLoader(text)
    root = loader.get_single_node()
    return [] if root is None or root.tag.endswith(":null") else list(walk(loader, root, ""))


def walk(loader: yaml.SafeLoader, mapping: yaml.Node, prefix: str) -> Iterator[Entry]:
    """The entries of one mapping; raises as `entries_of`."""
    pairs = mapping.value if isinstance(mapping, yaml.MappingNode) else [(mapping, mapping)]
    for key, node in pairs:
        if not isinstance(key, yaml.ScalarNode) or node is key:
            raise NotSettings("expected 'name: value' lines")
        name, line = f"{prefix}{key.value}", key.start_mark.line + 1
        if isinstance(node, yaml.MappingNode) and node.tag.endswith(":map"):
            yield name, None, line
            yield from walk(loader, node, f"{name}.")
            continue
        value = loader.construct_object(node, deep=True)
        # as on the command line, 007 and 1:30 stay what they are
        is_as_written = isinstance(node, yaml.ScalarNode) and not isinstance(value, bool | None)
        yield name, str(node.value) if is_as_written else as_text(value), line


def faults(entries: Sequence[Entry]) -> list[str]:
    """What stands more than once, nested or dotted, and what counts on the command line only."""
    lines: dict[str, list[int]] = {}
    for name, text, line in entries:
        for one in sorted({name} if text is None else {name, plain_name(name)}):
            lines.setdefault(one, []).append(line)
    twice = {tuple(found): name for name, found in lines.items() if len(found) > 1}
    only = [(name, line) for name, _, line in entries if name in COMMAND_LINE_ONLY]
    return [
        *(f"{name} stands in lines {' and '.join(map(str, at))}" for at, name in twice.items()),
        *(f"line {at}: {n} counts on the command line only: {COMMAND_LINE_ONLY[n]}"
          for n, at in only),
    ]  # fmt: skip


# ---- values -------------------------------------------------------------------------------


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


def as_text(value: object) -> str:
    """A value as it would be given on the command line."""
    if isinstance(value, str):
        return value
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"))
    return text.removesuffix("\n").removesuffix("\n...")


def texts_of(value: str) -> list[str]:
    """The texts of a list as it is given on the command line, or the one text."""
    try:
        found = yaml.safe_load(value)
    except yaml.YAMLError:
        return [value]
    return [str(one) for one in found] if isinstance(found, list) else [value]
