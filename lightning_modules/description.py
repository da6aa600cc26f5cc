"""What a checkpoint says of its model, so that any process can build it and feed it."""

from collections.abc import Mapping
from typing import Any

from lightning_modules.checkpoint import DESCRIPTION_FORMAT


def describe(name: str, arguments: Mapping[str, Any], of_data: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values: the network, and what stands in `of_data` of its inputs and targets.

    Args:
        name: Of the network.
        arguments: It was built with.
    """
    network = {"name": name, "arguments": dict(arguments)}
    return {"format": DESCRIPTION_FORMAT, "network": network, **of_data}
