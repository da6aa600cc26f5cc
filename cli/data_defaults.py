"""What a network asks of its data, where the user has asked for nothing else."""

from collections.abc import Collection, Mapping
from typing import Any

from cli.settings import Setting, as_text, settings_of


def data_defaults(
    network: Any, configuration: Mapping[str, Any], given: Collection[str]
) -> tuple[list[Setting], list[str]]:
    """Settings of the data that the network's `data_defaults(arguments)` gives.

    Args:
        network: The class, or function that builds one; the attribute may also be a plain dict.
        configuration: As far as it was given.
        given: Names of settings that stand for themselves.

    Returns:
        The settings that this data has, and a line on them and on those that it has not.

    Raises:
        ValueError: What the network gives is no dict of settings.
    """
    name, data = configuration["model"]["name"], configuration["data"]
    asked = getattr(network, "data_defaults", {})
    if callable(asked):
        asked = asked({k: v for k, v in configuration["model"].items() if k != "name"})
    if not isinstance(asked, Mapping):
        raise ValueError(f"--model {name}: data_defaults gives {asked!r}, expected a dict")
    wanted = {key: value for key, value in asked.items() if f"data.{key}" not in given}
    taken = {key: value for key, value in wanted.items() if key in data}
    left = {key: value for key, value in wanted.items() if key not in data}
    lines = [f"{listed(taken)}, as --model {name} asks"] if taken else []
    if left:
        lines.append(
            f"not taken, as --data {data['name']} has no such setting: {listed(left)}, which "
            f"--model {name} asks for"
        )
    return settings_of({"data": taken}, f"data_defaults of {name}"), lines


def listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"data.{key} {as_text(value)}" for key, value in settings.items())
