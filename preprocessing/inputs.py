"""What goes into a model: the names, dtypes and axes of its inputs, and whether arrays fit them.

An axis is an integer (fixed) or the name of a dynamic axis ("batch", for text also "length"). In a
spec with a length axis, the integer input of shape [batch] holds each row's valid length, and the
inputs of shape [batch, length] are padded with 0 at the end.

N batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

DTYPES = ("uint8", "int64", "float32")
FORM = (
    'input_spec is {"inputs": [{"name": ..., "dtype": ..., "shape": [...]}], '
    '"dynamic": {"batch": [low, high]}}'
)


@dataclass(frozen=True)
class InputSpec:
    """One input; an axis is an int or the name of a dynamic axis."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def describe(self) -> str:
        return f"{self.name} {self.dtype} [{','.join(map(str, self.shape))}]"

    def fits(self, dtype: str, shape: Sequence[int]) -> bool:
        """Whether an array is of this dtype, and its axes are of the fixed sizes."""
        axes = zip(self.shape, shape, strict=False)
        return (
            dtype == self.dtype
            and len(shape) == len(self.shape)
            and all(isinstance(axis, str) or axis == size for axis, size in axes)
        )


@dataclass(frozen=True)
class InputsSpec:
    """All inputs in the order in which the network takes them, and bounds of dynamic axes."""

    inputs: tuple[InputSpec, ...]
    dynamic: dict[str, tuple[int, int]]

    @classmethod
    def from_json(cls, input_spec: Mapping[str, Any]) -> Self:
        """Reads a datamodule's `input_spec`.

        Raises:
            ValueError: All that is wrong with it, in one message.
        """
        try:
            inputs = tuple(
                InputSpec(item["name"], item["dtype"], tuple(item["shape"]))
                for item in input_spec["inputs"]
            )
            bounds = {axis: (low, high) for axis, (low, high) in input_spec["dynamic"].items()}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{FORM}, got {input_spec}") from error
        spec = cls(inputs, bounds)
        problems = spec.problems()
        if problems:
            raise ValueError(f"input_spec: {'; '.join(problems)}")
        return spec

    def problems(self) -> list[str]:
        """Everything that contradicts itself."""
        found = [] if self.inputs else ["no inputs"]
        if twice := {name for name in self.names if self.names.count(name) > 1}:
            found.append(f"{', '.join(sorted(twice))} comes twice")
        for item in self.inputs:
            if not str(item.name).isidentifier():
                found.append(f"{item.name!r} is no name that a function's argument could have")
            if item.dtype not in DTYPES:
                found.append(
                    f"{item.name} has dtype {item.dtype!r}, not one of {', '.join(DTYPES)}"
                )
            if not item.shape or item.shape[0] != "batch":
                found.append(f"{item.name} has shape {list(item.shape)}: the first axis is 'batch'")
            found += [
                f"axis {axis!r} of {item.name} has no bounds under 'dynamic'"
                for axis in item.shape
                if isinstance(axis, str) and axis not in self.dynamic
            ]
        for axis, (low, high) in self.dynamic.items():
            if not 1 <= low < high:
                found.append(f"bounds of axis {axis!r} are [{low},{high}]: 1 <= low < high")
        return found

    @property
    def names(self) -> list[str]:
        return [item.name for item in self.inputs]

    @property
    def lengths_name(self) -> str | None:
        """The input that holds each row's valid length, for text."""
        if "length" not in self.dynamic:
            return None
        return next((item.name for item in self.inputs if item.shape == ("batch",)), None)

    def check_arrays(self, arrays: Mapping[str, Any], origin: str) -> None:
        """Compares names, dtypes and fixed axes of samples with the spec.

        Args:
            arrays: NumPy arrays or tensors by name, [N,...] each.
            origin: Where they come from, for the message.

        Raises:
            ValueError: The first difference.
        """
        for item in self.inputs:
            if item.name not in arrays:
                raise ValueError(f"{origin}: no input {item.name!r} (found {', '.join(arrays)})")
            dtype = str(arrays[item.name].dtype).removeprefix("torch.")
            shape = tuple(arrays[item.name].shape)
            if not item.fits(dtype, shape):
                raise ValueError(
                    f"{origin}: expected {item.describe()}, "
                    f"found {dtype} [{','.join(map(str, shape))}]"
                )


def values_of(inputs: Any) -> list[Any]:
    """A batch's inputs, named or not, in their order, as a network is called with them."""
    if isinstance(inputs, Mapping):
        return list(inputs.values())
    return list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]


def named(inputs: Any, names: Sequence[str]) -> dict[str, Any]:
    """A batch's inputs by name: they are so already, or a tuple, or the one of a single input.

    Raises:
        ValueError: They are others, or more or fewer, or in another order.
    """
    if isinstance(inputs, Mapping):
        if list(inputs) != list(names):
            raise ValueError(
                f"a batch has the inputs {', '.join(map(str, inputs)) or 'none'}, but input_spec "
                f"has {', '.join(names)}: names and order must agree"
            )
        return dict(inputs)
    values = values_of(inputs)
    if len(values) != len(names):
        raise ValueError(f"a batch has {len(values)} inputs, but input_spec has {', '.join(names)}")
    return dict(zip(names, values, strict=True))


def shape_in_words(value: Any) -> str:
    """Type and shape of arrays or tensors, in whatever they are packed."""
    if isinstance(value, Mapping):
        parts = [f"{name}: {shape_in_words(part)}" for name, part in value.items()]
    elif isinstance(value, (tuple, list)):
        parts = [*map(shape_in_words, value)]
    elif hasattr(value, "shape"):
        kind = getattr(value, "dtype", type(value).__name__)
        return f"{kind} {list(value.shape)}".removeprefix("torch.")
    else:
        return type(value).__name__
    return f"a {type(value).__name__} of {', '.join(parts) or 'nothing'}"


def padded_stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """One array [N,...] of arrays of one rank, with 0 at the end of those that are shorter."""
    size = np.max([array.shape for array in arrays], axis=0, initial=0).astype(int)
    stacked = np.zeros((len(arrays), *size), arrays[0].dtype)
    for row, array in enumerate(arrays):
        stacked[row, ...][tuple(map(slice, array.shape))] = array
    return stacked
