"""Is a model's backward right? Compares gradients with finite differences, in float64.

Works on copies, on a few samples, with dropout and BatchNorm frozen, at several step sizes and at
a point moved off exact kinks, so that ReLU and max-pooling raise no alarm. Knows no trainer.

N batch.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn

from callbacks.module_contract import ComputesLoss, layer_name

MAX_SAMPLES = 8
MAX_DIRECTIONS = 24  # where there are more parameters, neighbours share a direction
MAX_SECONDS = 3.0  # for all directions; a slow model gets fewer of them
STEP_SIZES = (1e-4, 1e-3, 1e-5, 1e-6)  # relative to the weights
FLOOR = 1e-7  # slopes below it drown in rounding


def check_gradients(
    module: ComputesLoss,
    batch: Any,
    device: torch.device,
    tolerance: float = 0.01,
    all_must_learn: bool = False,
) -> list[str]:
    """Checks losses and gradients; leaves the module and the random state as they are.

    Args:
        module: A LightningModule, of which copies are made, or another nn.Module.
        batch: What it computes the loss of.
        device: Where to compute; the CPU stands in for one without float64.
        tolerance: Relative difference that still counts as right.
        all_must_learn: Whether a parameter that gets no gradient is an error.

    Returns:
        Lines to print, of things that may be meant.

    Raises:
        ValueError: A loss is not finite, or a backward is wrong.
    """
    device = torch.device("cpu") if device.type == "mps" else device
    try:
        single = copied(module, device)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return [f"finite differences skipped, the module cannot be copied: {reason}"]
    with isolate_rng(), torch.enable_grad():
        silent = check_connections(single, first_samples(batch, device, dtype_of(single)))
        del single  # or two copies would be there at once
        if silent and all_must_learn:
            raise ValueError(no_gradient_on_ranks(silent))
        found = f"no gradient reaches {', '.join(silent)}: unused or detached in the forward pass"
        lines = [found] if silent else []
        double = frozen(copied(module, device).double())
        few = first_samples(batch, device, torch.float64)
        try:
            if double.compute_loss(few)[0].dtype != torch.float64:
                return [*lines, "finite differences skipped, the loss does not stay in float64"]
            wrong = wrong_gradients(double, lambda: double.compute_loss(few)[0].mean(), tolerance)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            return [*lines, f"finite differences skipped, no float64 in this model: {reason}"]
    if wrong:
        raise ValueError(
            f"the backward pass is wrong: gradients of {', '.join(wrong)} finite differences; the "
            "last of them lies next to the fault (where it is meant, as in a straight-through "
            "estimator: --gradient_check.before_fit false)"
        )
    return lines


def first_samples(batch: Any, device: torch.device, floats: torch.dtype) -> Any:
    """A few samples, however they are packed; those that are not whole numbers in that type."""
    if isinstance(batch, Tensor):
        return batch[:MAX_SAMPLES].to(device, floats if batch.is_floating_point() else None)
    if isinstance(batch, Mapping):
        return {name: first_samples(part, device, floats) for name, part in batch.items()}
    return tuple(first_samples(part, device, floats) for part in batch)


def dtype_of(module: nn.Module) -> torch.dtype:
    """What a module computes in."""
    found = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(found, torch.float32)


def copied(module: Any, device: torch.device) -> Any:
    """A copy with gradients of its own; a LightningModule leaves its Trainer out."""
    found = copy.deepcopy(module).to(device)
    found.zero_grad()
    return found


def check_connections(module: Any, batch: Any) -> list[str]:
    """One backward in training mode: is all finite, which parameters get no gradient?

    Raises:
        ValueError: A loss is not finite.
    """
    for part in module.modules():
        # statistics stay frozen, which also keeps SyncBatchNorm from waiting for other ranks
        part.training = not isinstance(part, nn.modules.batchnorm._BatchNorm)
    losses, _ = module.compute_loss(batch)
    broken = (~losses.isfinite()).nonzero().flatten().tolist()
    if broken:
        raise ValueError(f"the loss of row {broken[0]} of the example batch is not finite")
    losses.mean().backward()
    return without_gradient(module)


def without_gradient(model: nn.Module) -> list[str]:
    """Names of parameters that the last backward did not reach."""
    named = model.named_parameters()
    return [layer_name(name) for name, p in named if p.requires_grad and p.grad is None]


def no_gradient_on_ranks(names: Sequence[str]) -> str:
    """Why several processes stop at such parameters, and what to do."""
    return (
        f"no gradient reaches {', '.join(names)}: several processes would wait for it for ever; "
        "remove what the forward pass does not use, or, where that is meant, add --strategy "
        "ddp_find_unused_parameters_true"
    )


def wrong_gradients(model: nn.Module, loss: Callable[[], Tensor], tolerance: float) -> list[str]:
    """Parameters whose gradient disagrees with finite differences, in the model's order.

    Returns:
        `NAME is 2.00 x`, the factor being analytic / numeric along the tried direction.
    """
    named = [(layer_name(name), p) for name, p in model.named_parameters() if p.requires_grad]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, p in named:  # off exact kinks, such as a zero bias before a ReLU
            noise = torch.randn(p.shape, dtype=p.dtype, generator=generator).to(p.device)
            p.mul_(1 + 0.05 * noise) if p.any() else p.add_(1e-3 * noise)
    start = time.perf_counter()
    here = loss()
    gradients = torch.autograd.grad(here, [p for _, p in named], allow_unused=True)
    seconds = time.perf_counter() - start
    found = [(n, p, g) for (n, p), g in zip(named, gradients, strict=True) if g is not None]
    affordable = int(MAX_SECONDS / (2 * seconds + 1e-9))
    num_groups = max(1, min(len(found), MAX_DIRECTIONS, affordable))
    wrong = []
    for group in np.array_split(np.arange(len(found)), num_groups):
        names, parameters, slopes = zip(*(found[i] for i in group), strict=True)
        directions = [direction(p, g, generator) for p, g in zip(parameters, slopes, strict=True)]
        analytic = sum(float((g * d).sum()) for g, d in zip(slopes, directions, strict=True))
        numeric = disagreement(
            parameters, directions, loss, float(here.detach()), analytic, tolerance
        )
        if numeric is not None:
            name = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
            wrong.append(f"{name} ({analytic:.3g} against {numeric:.3g})")
    return wrong


def direction(parameter: Tensor, gradient: Tensor, generator: torch.Generator) -> Tensor:
    """Half along the gradient, half random, as long as the parameter itself."""
    noise = torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)
    noise = noise.to(parameter.device)
    mixed = noise / noise.norm() + gradient / gradient.norm().clamp_min(1e-300)
    return mixed * (parameter.detach().norm() / mixed.norm().clamp_min(1e-300))


@torch.no_grad()
def disagreement(
    parameters: Sequence[Tensor],
    directions: Sequence[Tensor],
    loss: Callable[[], Tensor],
    here: float,
    analytic: float,
    tolerance: float,
) -> float | None:
    """The slope by finite differences where it contradicts `analytic`, None where it does not.

    A contradiction needs two step sizes at which the slopes to both sides agree with each other
    but not with `analytic`: at a kink the sides differ.
    """

    def loss_at(step: float) -> float:
        for p, d in zip(parameters, directions, strict=True):
            p.add_(d, alpha=step)
        with torch.enable_grad():  # or Transformer layers take another path than in training
            value = float(loss().detach())
        for p, d in zip(parameters, directions, strict=True):
            p.sub_(d, alpha=step)
        return value

    contradictions = []
    for size in STEP_SIZES:
        right, left = (loss_at(size) - here) / size, (here - loss_at(-size)) / size
        numeric = (right + left) / 2
        error = abs(numeric - analytic)
        if error <= tolerance * max(abs(numeric), abs(analytic)) + FLOOR:
            return None
        if abs(right - left) < error / 2:
            contradictions.append(numeric)
    return contradictions[-1] if len(contradictions) >= 2 else None


def frozen(model: nn.Module) -> Any:
    """Evaluation mode, but with a backward: cuDNN has none for recurrent layers in it."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.training, module.dropout = True, 0.0
    return model
