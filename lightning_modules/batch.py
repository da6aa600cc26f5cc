"""A batch is its inputs and its targets. Inputs are named, in the order in which a network takes
them; from a data source of one's own they may be a tuple, or one tensor.

N batch.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from preprocessing.inputs import values_of

Inputs = Mapping[str, Tensor] | tuple[Tensor, ...] | list[Tensor] | Tensor
Batch = tuple[Inputs, Tensor]  # inputs [N,...], targets [N,...]


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """The inputs in their order, as a network is called with them."""
    return values_of(inputs)


def first_samples(batch: Any, count: int, device: torch.device) -> Any:
    """The first samples of a batch on a device, packed as before."""
    if isinstance(batch, Tensor):
        return batch[:count].to(device)
    if isinstance(batch, Mapping):
        return {name: first_samples(part, count, device) for name, part in batch.items()}
    return tuple(first_samples(part, count, device) for part in batch)
