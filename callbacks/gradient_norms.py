"""What is measured of one step: gradients, changes and weights by layer, and dead units.

N batch, C channels, L tokens, D features, P parameters.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from callbacks.module_contract import layer_name

WHOLE = "(all)"  # the row of all that an optimizer trains


class Layer(NamedTuple):
    """One measurement of a layer; NaN where a value does not apply."""

    layer: str
    gradient_norm: float = math.nan  # before clipping, unscaled
    clipped_norm: float = math.nan
    update_ratio: float = math.nan  # norm of the weights' change / norm of the weights
    dead_share: float = math.nan  # units that are 0 for every sample of the batch


class StepNorms:
    """Norms around one optimizer's step; holds a copy of its weights until the step is done.

    Args:
        named: The weights that it changes, by name.
        whole: What all of them together are called.
    """

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]], whole: str = WHOLE) -> None:
        self.whole = whole
        self.names = [layer_name(name).rpartition(".")[0] for name, _ in named]
        self.parameters = [p for _, p in named]
        self.weights = [p.detach().clone() for p in self.parameters]
        self.before = norms([p.grad for p in self.parameters])
        self.columns: list[Tensor] = []

    @torch.no_grad()
    def finish(self, was_scaled: bool) -> None:
        """Called after the step. A fused optimizer unscales in it, and then nothing was clipped."""
        after = norms([p.grad for p in self.parameters])
        changes = [p - weight for p, weight in zip(self.parameters, self.weights, strict=True)]
        before = after if was_scaled else self.before
        self.columns = [before, after, norms(changes), norms(self.weights)]

    def layers(self) -> list[Layer]:
        """All that was measured, copied from the device at once; the whole comes first."""
        table = torch.stack(self.columns).cpu()  # [4,P]
        layers = []
        for layer in [self.whole, *dict.fromkeys(self.names)]:
            members = [layer in (self.whole, name) for name in self.names]
            gradient, clipped, change, size = table[:, members].norm(dim=1).tolist()
            layers.append(Layer(layer, gradient, clipped, change / size if size else math.nan))
        return layers


def trained_by(optimizer: Optimizer, module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters of an optimizer that have a gradient, by name, in the module's order."""
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return [(n, p) for n, p in module.named_parameters() if id(p) in own and p.grad is not None]


def dead_layers(dead: Mapping[str, Tensor]) -> list[Layer]:
    """The share of dead units of each activation, copied from the device at once."""
    shares = torch.stack([share.float() for share in dead.values()]).tolist() if dead else []
    return [Layer(name, dead_share=share) for name, share in zip(dead, shares, strict=True)]


def dead_units_hook(dead: dict[str, Tensor], name: str) -> Callable[[Any, Any, Tensor], None]:
    """Notes the share of units that are 0 for all samples and positions of the output."""

    def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
        size = output.detach().abs()
        axes = (1, 2) if size.ndim == 3 else (1,)  # of three, units may be [N,C,L] or [N,L,D]
        others = [[d for d in range(size.ndim) if d != axis] for axis in axes]
        shares = [(size.amax(dims) < 1e-6).float().mean() for dims in others]
        dead[name] = torch.stack(shares).max()

    return hook


def norms(tensors: list[Any]) -> Tensor:
    """L2 norm of each, float32 [P]."""
    # half precision is summed in float32; what is wider cannot be narrowed before the sum
    is_wide = any(x.dtype == torch.float64 or x.is_complex() for x in tensors)
    found = torch._foreach_norm(tensors, 2, dtype=None if is_wide else torch.float32)
    return torch.stack([norm.float() for norm in found])
