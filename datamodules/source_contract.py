"""What a datamodule of somebody else has to give, looked at before anything is built from it.

C channels, M training samples.
"""

import inspect
from typing import Any

from tasks.single_label import SingleLabel

NEEDED = {
    "kind": '"image" or "text"',
    "task": "what a target means, such as SingleLabel(class_names); or class_names",
    "input_spec": "names, types and axes of the inputs",
    "preprocessing": "how a raw sample becomes an input",
    "fingerprint": "a text that differs for other data",
    "train_targets": "array [M,...] as the task has them",
    "network_arguments": "a method that gives num_classes and the like by name",
    "example_batch": "a method that gives raw inputs and targets of a few training samples",
    "samples": "a method (split, limit=None) that gives inputs by name, and targets",
}
OF_IMAGES = {"normalisation": '{"mean": [C], "std": [C]} of pixels in 0..1'}


def check_source(data: Any) -> None:
    """Names all that is missing; what most data has no use for gets its default.

    Args:
        data: A datamodule after its setup.

    Raises:
        ValueError: What a run needs is missing.
    """
    if not has(data, "task") and has(data, "class_names"):
        data.task = SingleLabel(data.class_names)
    for name, default in (("files", {}), ("notes", []), ("initialise", lambda network: None)):
        if not has(data, name):
            setattr(data, name, default)
    needed = NEEDED if has(data, "kind") and data.kind == "text" else NEEDED | OF_IMAGES
    missing = [f"\n  {name}: {what}" for name, what in needed.items() if not has(data, name)]
    if missing:
        name = type(data).__name__
        raise ValueError(f"datamodule {name} lacks, after its setup:{''.join(missing)}")


def has(data: Any, name: str) -> bool:
    """Whether it is there; a property is not run, which may fail for a reason of its own."""
    return inspect.getattr_static(data, name, None) is not None
