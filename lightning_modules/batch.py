"""A batch is its inputs and its targets. Inputs are named, in the order in which a network takes
them; from a data source of one's own they may be a tuple, or one tensor.

N batch.
"""

from collections.abc import Mapping

from torch import Tensor

from preprocessing.inputs import values_of

Inputs = Mapping[str, Tensor] | tuple[Tensor, ...] | list[Tensor] | Tensor
Batch = tuple[Inputs, Tensor]  # inputs [N,...], targets [N,...]


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """The inputs in their order, as a network is called with them."""
    return values_of(inputs)
