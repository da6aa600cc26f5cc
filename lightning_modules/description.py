"""What a checkpoint says of its model, so that any process can build it and feed it."""

from collections.abc import Mapping
from typing import Any

from lightning_modules.checkpoint import DESCRIPTION_FORMAT


def describe(name: str, arguments: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Plain values: the network, and what the datamodule says of its inputs and classes.

    Args:
        name: Of the network.
        arguments: It was built with.
        data: The datamodule, set up.
    """
    return {
        "format": DESCRIPTION_FORMAT,
        "kind": data.kind,
        "network": {"name": name, "arguments": dict(arguments)},
        "task": data.task.name,
        **data.task.values,
        "input_spec": data.input_spec,
        "preprocessing": data.preprocessing,
        "files": data.files,
        "normalisation": data.normalisation if data.kind == "image" else None,
        "fingerprint": data.fingerprint,
    }
