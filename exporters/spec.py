"""What goes into an exported model: names, dtypes, dynamic axes with bounds, and an example.

Built from a datamodule's `input_spec`, so that a mistake shows when the fit starts instead of
after it. An axis is an integer (fixed) or the name of a dynamic axis ("batch", for text also
"length"). In a spec with a length axis, the integer input of shape [batch] holds each row's valid
length, and the inputs of shape [batch, length] are padded with 0 at the end.

N batch, L tokens, K classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

EXAMPLE_BATCH = 2  # a batch of 1 would be specialised: the file would run only batch 1
EXAMPLE_LENGTH = 7
DTYPES = ("uint8", "int64", "float32")


@dataclass(frozen=True)
class InputSpec:
    """One input tensor; an axis is an int or the name of a dynamic axis."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def describe(self) -> str:
        return f"{self.name} {self.dtype} [{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class ExportSpec:
    """All inputs in the order of `forward`, and the bounds of the dynamic axes."""

    inputs: tuple[InputSpec, ...]
    dynamic: dict[str, tuple[int, int]]

    @classmethod
    def from_json(cls, input_spec: Mapping[str, Any]) -> "ExportSpec":
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
            raise ValueError(
                'input_spec is {"inputs": [{"name": ..., "dtype": ..., "shape": [...]}], '
                f'"dynamic": {{"batch": [low, high]}}}}, got {input_spec}'
            ) from error
        spec = cls(inputs, bounds)
        problems = spec.problems()
        if problems:
            raise ValueError(f"input_spec: {'; '.join(problems)}")
        return spec

    def problems(self) -> list[str]:
        """Everything that contradicts itself."""
        found = [] if self.inputs else ["no inputs"]
        for item in self.inputs:
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

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        """The form that torch.export takes; one Dim an axis name, shared by all inputs."""
        dims = {
            axis: torch.export.Dim(axis, min=low, max=high)
            for axis, (low, high) in self.dynamic.items()
        }
        return tuple(
            {i: dims[axis] for i, axis in enumerate(item.shape) if isinstance(axis, str)}
            for item in self.inputs
        )

    def example(self, samples: Mapping[str, np.ndarray] | None = None) -> tuple[Tensor, ...]:
        """Example inputs with a batch of 2: real rows where there are samples, else ones."""
        if samples is not None and len(samples[self.names[0]]) >= EXAMPLE_BATCH:
            return tuple(
                torch.from_numpy(np.ascontiguousarray(samples[name][:EXAMPLE_BATCH]))
                for name in self.names
            )
        sizes = {axis: min(EXAMPLE_LENGTH, high) for axis, (_, high) in self.dynamic.items()}
        sizes["batch"] = EXAMPLE_BATCH
        return tuple(
            torch.ones(
                [sizes[axis] if isinstance(axis, str) else axis for axis in item.shape],
                dtype=getattr(torch, item.dtype),
            )
            for item in self.inputs
        )

    def check_arrays(self, arrays: Mapping[str, np.ndarray], origin: str) -> None:
        """Compares names, dtypes and fixed axes of samples with the spec.

        Raises:
            ValueError: The first difference, with the name of where the samples come from.
        """
        for item in self.inputs:
            if item.name not in arrays:
                raise ValueError(f"{origin}: no input {item.name!r} (found {', '.join(arrays)})")
            array = arrays[item.name]
            fits = array.ndim == len(item.shape) and all(
                isinstance(axis, str) or axis == size
                for axis, size in zip(item.shape, array.shape, strict=True)
            )
            if str(array.dtype) != item.dtype or not fits:
                raise ValueError(
                    f"{origin}: expected {item.describe()}, "
                    f"found {array.dtype} [{','.join(map(str, array.shape))}]"
                )


def assert_exportable(module: nn.Module) -> None:
    """Refuses what would be baked into a file: training mode, or weights that are not finite.

    Raises:
        ValueError: The module or tensor by name.
    """
    training = [name or "the module" for name, part in module.named_modules() if part.training]
    if training:
        raise ValueError(f"{training[0]} is in training mode: an exported file would keep dropout")
    for name, tensor in module.state_dict().items():
        # other values may stand there by get_extra_state
        if isinstance(tensor, Tensor) and (tensor.is_floating_point() or tensor.is_complex()):
            bad = int((~torch.isfinite(tensor)).sum())
            if bad:
                raise ValueError(
                    f"{name} holds {bad} values of {tensor.numel()} that are NaN or infinite: "
                    "this checkpoint cannot be exported"
                )
