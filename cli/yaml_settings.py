"""A YAML file as flat settings: every value as it was written, and no setting twice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from cli.flags import plain_name

COMMAND_LINE_ONLY = {
    "allow_external_code": "add --allow_external_code, no file may give itself this permission",
    "config": "give --config FILE for each, the later wins",
    "help": "python train.py --help",
}


@dataclass(frozen=True)
class Entry:
    """A dotted name with its value, or the name of a group (None)."""

    name: str
    text: str | None
    line: int  # from 1


class NotSettings(ValueError):
    """YAML, but something else than `name: value` lines."""


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
    if root is None or root.tag.endswith(":null"):
        return []
    if not isinstance(root, yaml.MappingNode):
        raise NotSettings("expected 'name: value' lines")
    return list(walk(loader, root, ""))


def walk(loader: yaml.SafeLoader, node: yaml.MappingNode, prefix: str) -> Iterator[Entry]:
    """The entries of one mapping.

    Raises:
        yaml.YAMLError: A value that is not plain.
        NotSettings: A name that is none.
    """
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise NotSettings("expected 'name: value' lines")
        line = key.start_mark.line + 1
        name = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode) and value.tag.endswith(":map"):
            yield Entry(name, None, line)
            yield from walk(loader, value, f"{name}.")
        else:
            yield Entry(name, as_written(loader, value), line)


def as_written(loader: yaml.SafeLoader, node: yaml.Node) -> str:
    """A value as it would be given on the command line: 007 and 1:30 stay what they are.

    Raises:
        yaml.YAMLError: It is not plain.
    """
    value = loader.construct_object(node, deep=True)
    if isinstance(node, yaml.ScalarNode) and value is not None and not isinstance(value, bool):
        return str(node.value)
    return as_text(value)


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


def faults(entries: Sequence[Entry]) -> list[str]:
    """What stands more than once, nested or dotted, and what counts on the command line only."""
    lines: dict[str, list[int]] = {}
    for entry in entries:
        names = {entry.name} if entry.text is None else {entry.name, plain_name(entry.name)}
        for name in sorted(names):
            lines.setdefault(name, []).append(entry.line)
    twice = {tuple(found): name for name, found in lines.items() if len(found) > 1}
    return [
        *(f"{name} stands in lines {' and '.join(map(str, at))}" for at, name in twice.items()),
        *(
            f"line {entry.line}: {entry.name} counts on the command line only: {why}"
            for entry in entries
            if (why := COMMAND_LINE_ONLY.get(entry.name))
        ),
    ]
