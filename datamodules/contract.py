"""What a run asks of its data: the whole contract, its defaults, and the check of foreign data.

`DataSource` names everything that train.py, the command line, callbacks and exporters use. A part
that most data have no use for may be left out: `part` gives its default, and nothing is ever set
on the user's object.

N batch, M training samples, C channels, H height, W width, K classes.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pytorch_lightning as pl
from torch import Tensor, nn
from torch.utils.data import DataLoader

from datamodules.findings import Finding
from preprocessing.inputs import InputsSpec, named, shape_in_words
from preprocessing.reader import check_preprocessing
from tasks.base import Task
from tasks.single_label import SingleLabel

LOOKED_AT = 64  # training samples that are compared with input_spec before anything is trained


class DataSource(Protocol):
    """A LightningDataModule with these parts, all of which are there after `setup`."""

    # ---- what every source gives

    # what a target means (see `tasks.base`); left out where there are class names, K different
    # ones in the order of the labels, which then are a single label's
    task: Task
    class_names: list[str]
    # the inputs in the order in which a network takes them: {"inputs": [{"name", "dtype",
    # "shape"}], "dynamic": {axis: [lowest, highest]}}, see `preprocessing.inputs`
    input_spec: dict[str, Any]
    # differs for other data
    fingerprint: str
    # as the task has them, of a single label int64 [M]; for class weights and the data check
    train_targets: np.ndarray

    def network_arguments(self) -> dict[str, Any]:
        """What the data decide of a network: num_classes and the like by name."""

    def example_batch(self) -> tuple[dict[str, Tensor], Tensor]:
        """A few training samples, not augmented: inputs by name and targets [N,...]."""

    def samples(
        self, split: str, limit: int | None = None
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Inputs by name and targets of "train", "val" or "test", not augmented; where limited, of
        every class its share."""

    def train_dataloader(self) -> DataLoader:
        """Batches (inputs by name, targets). It needs a `generator` of its own to be resumed to
        the bit, and, to be so within an epoch, a `batch_sampler` that has set_epoch, start_at and
        samples_in (see `order.BatchOrder`)."""

    def val_dataloader(self) -> DataLoader:
        """Every sample once."""

    def test_dataloader(self) -> DataLoader:
        """Likewise."""

    # ---- what may be left out, see DEFAULTS

    # how a file becomes the inputs, by "kind": image, text or arrays (see `preprocessing.reader`);
    # left out it is arrays, and a bundle then takes .npz files alone
    preprocessing: dict[str, Any]
    # {"mean": [C], "std": [C]} of pixels in 0..1, for the input `images` uint8 [N,C,H,W], which the
    # deployed model then normalises; other inputs are handed on as they are
    normalisation: dict[str, list[float]] | None
    # name -> content of what the bundle brings along, made of the training data: a text's
    # tokenizer.json; a bundle with any is not uploaded to W&B unasked
    files: dict[str, str]
    # names that network_arguments() gives; on the class, for the flags
    determines: Sequence[str]
    # what a sample is called, and whether there is --data.join_labels
    noun: str
    joins_labels: bool
    # what was noticed when the data were read, in the order in which it is told
    findings: list[Finding]
    # how batches are loaded; known once the training loader is made
    loading: Sequence[str]
    # int64 [M] of each split that is at hand
    split_targets: dict[str, np.ndarray]

    def look(self, full: bool) -> list[Finding]:
        """What only a check of the data looks for; `full` reads every file once more."""

    def initialise(self, network: nn.Module) -> None:
        """Shows the training data to a new network."""

    def use_transform(self, transform: Callable[[Tensor, np.ndarray], Tensor]) -> None:
        """Takes the augmentation that --data.transform leads to."""


NEEDED = {
    "task": "what a target means, such as SingleLabel(class_names); or class_names",
    "input_spec": "names, dtypes and axes of the inputs",
    "fingerprint": "a text that differs for other data",
    "train_targets": "array [M,...] as the task has them",
    "network_arguments": "a method that gives num_classes and the like by name",
    "example_batch": "a method that gives raw inputs and targets of a few training samples",
    "samples": "a method (split, limit=None) that gives inputs by name, and targets",
    "train_dataloader": "a method that gives a loader",
    "val_dataloader": "a method that gives a loader",
    "test_dataloader": "a method that gives a loader",
}
DEFAULTS: dict[str, Callable[[Any], Any]] = {
    "task": lambda data: SingleLabel(data.class_names),
    "preprocessing": lambda data: {"kind": "arrays", **data.input_spec},
    "normalisation": lambda data: None,
    "files": lambda data: {},
    "noun": lambda data: "training sample",
    "joins_labels": lambda data: False,
    "findings": lambda data: [],
    "loading": lambda data: [],
    "split_targets": lambda data: {"train": data.train_targets},
    "look": lambda data: lambda full: [],
    "initialise": lambda data: lambda network: None,
}
DESCRIBED = ("input_spec", "preprocessing", "files", "normalisation", "fingerprint")


def part(data: Any, name: str) -> Any:
    """A part of a data source, or what stands for one that was left out, is None or empty."""
    found = getattr(data, name) if has(data, name) else None
    is_left_out = found is None or (isinstance(found, Mapping) and not found)
    return DEFAULTS[name](data) if is_left_out and name in DEFAULTS else found


def has(data: Any, name: str) -> bool:
    """Whether it is there; a property is not run, which may fail for a reason of its own."""
    found = inspect.getattr_static(data, name, None)
    return found is not None and found is not inspect.getattr_static(
        pl.LightningDataModule, name, None
    )


def described(data: Any) -> dict[str, Any]:
    """What a checkpoint has to say of the data, by name."""
    task = part(data, "task")
    return {"task": task.name, **task.values} | {name: part(data, name) for name in DESCRIBED}


def input_spec_of(data: Any) -> InputsSpec:
    return InputsSpec.from_json(data.input_spec)


def check_source(data: Any) -> None:
    """Names all that is missing or malformed, before anything is built from it.

    Args:
        data: A datamodule after its setup.

    Raises:
        ValueError: It does not keep the contract.
    """
    lacking = {name: what for name, what in NEEDED.items() if not has(data, name)}
    if has(data, "class_names"):
        lacking.pop("task", None)
    problems = [f"lacks {name}: {what}" for name, what in lacking.items()]
    unusable = {*lacking}
    for needs, find in CHECKS:
        found = [*find(data)] if unusable.isdisjoint(needs) else []
        problems += [f"{needs[0]}: {problem}" for problem in found]
        unusable |= {needs[0]} if found else set()
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise ValueError(
            f"datamodule {type(data).__name__} does not keep the contract of data after its setup "
            f"(the README lists it):{lines}"
        )


def bad_task(data: Any) -> Iterator[str]:
    if has(data, "task"):
        return
    names = data.class_names
    is_list = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    if not is_list or not 0 < len(names) == len({*names}):
        yield f"class_names: expected different texts, got {names!r:.200}"


def bad_fingerprint(data: Any) -> Iterator[str]:
    if not (isinstance(data.fingerprint, str) and data.fingerprint):
        yield f"expected a text, got {data.fingerprint!r:.200}"


def bad_network_arguments(data: Any) -> Iterator[str]:
    if not isinstance(found := data.network_arguments(), Mapping):
        yield f"expected values by name, got {found!r:.200}"


def bad_input_spec(data: Any) -> Iterator[str]:
    try:
        input_spec_of(data)
    except ValueError as error:
        yield str(error).removeprefix("input_spec: ")


def bad_train_targets(data: Any) -> Iterator[str]:
    yield from bad_targets(data.train_targets, part(data, "task"))


def bad_targets(targets: Any, task: Task) -> Iterator[str]:
    """What is wrong with the targets of some samples, an array or tensor."""
    if not hasattr(targets, "dtype") or not targets.ndim or not len(targets):
        yield f"expected targets {task.target_dtype} [N,...], got {shape_in_words(targets)}"
    elif problem := task.bad_target(np.asarray(targets)):
        yield problem


def bad_preprocessing(data: Any) -> Iterator[str]:
    try:
        check_preprocessing(part(data, "preprocessing"), part(data, "files"))
    except ValueError as error:
        yield str(error)


def bad_normalisation(data: Any) -> Iterator[str]:
    found, inputs = part(data, "normalisation"), data.input_spec["inputs"]
    if found is None:
        return
    sizes = [len(found[key]) for key in ("mean", "std") if key in found]
    shapes = [item["shape"] for item in inputs if item["name"] == "images"]
    if not shapes or len(shapes[0]) != 4 or sizes != [shapes[0][1]] * 2:
        yield (
            f"is for the mean and std of each channel of the input images, uint8 [batch,C,H,W]; "
            f"got {found} and the inputs {inputs}; others are normalised in the network"
        )


def bad_batch(data: Any) -> Iterator[str]:
    batch = data.example_batch()
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        yield f"expected (inputs, targets), got {shape_in_words(batch)}"
        return
    yield from bad_samples(data, *batch)


def bad_arrays(data: Any) -> Iterator[str]:
    yield from bad_samples(data, *data.samples("train", LOOKED_AT))


def bad_samples(data: Any, inputs: Any, targets: Any) -> Iterator[str]:
    """What does not fit input_spec, and what is no target."""
    spec = input_spec_of(data)
    try:
        arrays = named(inputs, spec.names)
        spec.check_arrays(arrays, "inputs")
    except ValueError as error:
        yield str(error).removeprefix("inputs: ")
        return
    yield from bad_targets(targets, part(data, "task"))
    lengths = {name: len(array) for name, array in arrays.items()} | {"targets": len(targets)}
    if len({*lengths.values()}) > 1:
        counted = ", ".join(f"{length} of {name}" for name, length in lengths.items())
        yield f"expected as many targets as samples of each input, got {counted}"


# what each looks at first, and what else it needs to be there
CHECKS: tuple[tuple[tuple[str, ...], Callable[[Any], Iterator[str]]], ...] = (
    (("fingerprint",), bad_fingerprint),
    (("network_arguments",), bad_network_arguments),
    (("task",), bad_task),
    (("input_spec",), bad_input_spec),
    (("train_targets", "task"), bad_train_targets),
    (("preprocessing", "input_spec"), bad_preprocessing),
    (("normalisation", "input_spec"), bad_normalisation),
    (("example_batch", "input_spec", "task"), bad_batch),
    (("samples", "input_spec", "task"), bad_arrays),
)
