"""What the words of a command line say together, before each is judged for itself."""

from collections.abc import Sequence
from dataclasses import replace

from cli.flags import NAMED_GROUPS
from cli.parsing import Setting, last_value, read_arguments
from cli.problems import UsageError
from cli.yaml_settings import as_text, texts_of


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


def check_bare(settings: Sequence[Setting]) -> None:
    """Names of files and classes are read before all else, and `true` is none.

    Raises:
        UsageError: A flag stands there without one.
    """
    needed = {"config": "a YAML file", "resume": "auto or a checkpoint",
              "test_only": "a checkpoint", "replay": "a replay file"}  # fmt: skip
    needed |= {f"{key}.name": "a name, or help" for key in NAMED_GROUPS}
    problems = [
        f"--{s.name.removesuffix('.name')} needs {needed[s.name]}"
        for s in settings
        if s.is_bare and s.name in needed
    ]
    if problems:
        raise UsageError(problems)


def check_purpose(settings: Sequence[Setting]) -> None:
    """Only one thing can be done with only one checkpoint.

    Raises:
        UsageError: Several are asked for.
    """
    asked = [f"--{n}" for n in ("test_only", "replay", "resume") if last_value(settings, n)]
    if len(asked) > 1:
        raise UsageError([f"{' and '.join(asked)} exclude each other: give one of them"])
