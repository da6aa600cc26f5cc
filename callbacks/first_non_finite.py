"""Names where a training step first produces a NaN or an infinity: layer, operation, samples.

Runs one forward and backward pass on a copy of the module with every layer's output and every
autograd operation watched. Slow (each value is looked at), so it is for a step that is known to
fail.

N batch.
"""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from callbacks.module_contract import layer_name

LOSS = "criterion"  # no layer: its values are those of the loss


@dataclass(frozen=True)
class Finding:
    """The first value that is not finite."""

    phase: str  # "weights", "forward", "loss" or "backward"
    layer: str  # dotted name; of a parameter where the weights are broken
    operation: str  # of autograd, such as LogBackward0; empty where there is none
    rows: tuple[int, ...]  # rows of the batch that show it; empty where that is not known

    def __str__(self) -> str:
        if self.phase == "weights":
            return f"the weights {self.layer} are not finite before the step"
        operation = f", operation {self.operation}" if self.operation else ""
        return f"{self.phase} pass of {self.layer}{operation}"


def find_first_non_finite(
    module: Any, batch: Any, precision: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Finding | None:
    """Runs a step on a copy, without touching gradients, buffers or the random state.

    Args:
        module: One that computes a loss, in training mode.
        batch: What it computes the loss of.
        precision: Makes the context in which a step computes.
    """
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if not torch.isfinite(value).all():
            return Finding("weights", layer_name(name), "", ())
    copied = copy.deepcopy(module)
    copied.zero_grad()
    found: list[Finding] = []
    owners: dict[Any, str] = {}
    hooks = [
        layer.register_forward_hook(forward_hook(name or "the network", found, owners))
        for name, layer in ((layer_name(n), one) for n, one in copied.named_modules())
        if name != LOSS
    ]
    devices = {p.device for p in copied.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=list(devices)), torch.enable_grad():
        with precision():
            losses, _ = copied.compute_loss(batch)
        if not found and not torch.isfinite(losses).all():
            rows = tuple((~torch.isfinite(losses)).nonzero().flatten().tolist())
            found.append(Finding("loss", "the loss", operation_of(losses), rows))
        if not found:
            watch_backward(losses, found, owners)
            losses.mean().backward()
    for hook in hooks:
        hook.remove()
    return found[0] if found else None


def forward_hook(
    name: str, found: list[Finding], owners: dict[Any, str]
) -> Callable[[nn.Module, Any, Any], None]:
    """Looks at a layer's output, and notes which autograd operations are its own."""

    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        for value in tensors_in(output):
            if value.grad_fn is not None:
                claim(value.grad_fn, name, owners)
            if not found and value.is_floating_point() and not torch.isfinite(value).all():
                bad = ~torch.isfinite(value.detach()).flatten(1).all(dim=1) if value.ndim else None
                rows = tuple(bad.nonzero().flatten().tolist()) if bad is not None else ()
                found.append(Finding("forward", name, operation_of(value), rows))

    return hook


def claim(node: Any, name: str, owners: dict[Any, str]) -> None:
    """Gives all operations that lead to a layer's output, and have no owner yet, to the layer.

    Inner layers finish first, so each operation goes to the innermost layer it is in; those
    before the layer already belong to earlier ones.
    """
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if current is None or current in owners:
            continue
        owners[current] = name
        waiting += [following for following, _ in current.next_functions]


def watch_backward(loss: Tensor, found: list[Finding], owners: dict[Any, str]) -> None:
    """Hooks every operation between the loss and the weights."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        node.register_hook(backward_hook(node.name(), owners.get(node, "the loss"), found))
        waiting += [following for following, _ in node.next_functions]


def backward_hook(operation: str, layer: str, found: list[Finding]) -> Callable[[Any, Any], None]:
    """Notes an operation that turns finite gradients into others."""

    def hook(inputs: Any, outputs: Any) -> None:
        if not found and any(not torch.isfinite(x).all() for x in tensors_in(inputs)):
            found.append(Finding("backward", layer, operation, ()))

    return hook


def operation_of(value: Tensor) -> str:
    """The autograd operation that made a tensor."""
    return value.grad_fn.name() if value.grad_fn is not None else ""


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in nested tuples and lists."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []
