"""What goes into an exported model, in the form that torch's exporters take, and an example.

Built from a datamodule's `input_spec`, so that a mistake shows when the fit starts instead of
after it.

N batch, L tokens, K classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from preprocessing.inputs import InputsSpec

EXAMPLE_BATCH = 2  # a batch of 1 would be specialised: the file would run only batch 1
EXAMPLE_LENGTH = 7


@dataclass(frozen=True)
class ExportSpec(InputsSpec):
    """All inputs in the order of `forward`, and the bounds of the dynamic axes."""

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
