"""Is a model's backward right? Compares gradients with finite differences, in float64.

Works on copies, on a few samples, with dropout and BatchNorm frozen, at several step sizes and at
a point moved off exact kinks, so that ReLU and max-pooling raise no alarm. Knows no trainer.

N batch, K classes.
"""

import copy
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn

from lightning_modules.batch import Batch, tensors_of

MAX_SAMPLES = 8
MAX_DIRECTIONS = 24  # where there are more parameters, neighbours share a direction
MAX_SECONDS = 3.0  # for all directions; a slow model gets fewer of them
STEP_SIZES = (1e-4, 1e-3, 1e-5, 1e-6)  # relative to the weights
FLOOR = 1e-7  # slopes below it drown in rounding
CROSS_ENTROPY = nn.CrossEntropyLoss()


def check_model(
    model: nn.Module,
    batch: Batch,
    device: torch.device,
    tolerance: float = 0.01,
    criterion: nn.Module = CROSS_ENTROPY,
    all_must_learn: bool = False,
) -> list[str]:
    """Checks outputs, targets and gradients; leaves model and random state as they are.

    Args:
        model: Inputs -> logits [N,K].
        batch: Inputs and targets int64 [N].
        device: Where to compute; the CPU stands in for one without float64.
        tolerance: Relative difference that still counts as right.
        criterion: Logits and targets -> the loss of each sample [N], or their mean.
        all_must_learn: Whether a parameter that gets no gradient is an error.

    Returns:
        Lines to print, of things that may be meant.

    Raises:
        ValueError: Logits and targets do not fit, or a backward is wrong.
    """
    device = torch.device("cpu") if device.type == "mps" else device
    inputs = [x[:MAX_SAMPLES].to(device) for x in tensors_of(batch[0])]
    targets = batch[1][:MAX_SAMPLES].to(device)
    with isolate_rng(), torch.enable_grad():
        criterion = copy.deepcopy(criterion).to(device)
        silent = check_connections(copy.deepcopy(model).to(device), inputs, targets, criterion)
        if silent and all_must_learn:
            raise ValueError(no_gradient_on_ranks(silent))
        found = f"no gradient reaches {', '.join(silent)}: unused or detached in the forward pass"
        lines = [found] if silent else []
        double, criterion = frozen(copy.deepcopy(model).to(device).double()), criterion.double()
        try:
            if criterion(double(*inputs), targets).dtype != torch.float64:
                return [*lines, "finite differences skipped, the loss does not stay in float64"]
            wrong = wrong_gradients(
                double, lambda: criterion(double(*inputs), targets).mean(), tolerance
            )
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


def check_connections(
    model: nn.Module, inputs: Sequence[Tensor], targets: Tensor, criterion: nn.Module
) -> list[str]:
    """One backward in training mode: do shapes fit, which parameters get no gradient?"""
    for module in model.modules():
        # statistics stay frozen, which also keeps SyncBatchNorm from waiting for other ranks
        module.training = not isinstance(module, nn.modules.batchnorm._BatchNorm)
    logits = model(*inputs)
    check_outputs(logits, targets)
    criterion(logits.float(), targets).mean().backward()
    return without_gradient(model)


def without_gradient(model: nn.Module) -> list[str]:
    """Names of parameters that the last backward did not reach."""
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]


def no_gradient_on_ranks(names: Sequence[str]) -> str:
    """Why several processes stop at such parameters, and what to do."""
    return (
        f"no gradient reaches {', '.join(names)}: several processes would wait for it for ever; "
        "remove what the forward pass does not use, or, where that is meant, add --strategy "
        "ddp_find_unused_parameters_true"
    )


def check_outputs(logits: Tensor, targets: Tensor) -> None:
    """Logits must be [N,K] and finite, targets integers [N] in 0..K-1.

    Raises:
        ValueError: What was found instead, with the first bad row.
    """
    num_samples = len(targets)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != num_samples:
        found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the model gives {found}, expected logits [N,K] with N = {num_samples}")
    if targets.ndim != 1 or targets.is_floating_point() or targets.is_complex():
        raise ValueError(
            f"targets are {targets.dtype} {list(targets.shape)}, expected integers [{num_samples}]"
        )
    num_classes = logits.shape[1]
    bad = ((targets < 0) | (targets >= num_classes)).nonzero().flatten().tolist()
    if bad:
        raise ValueError(
            f"target {targets[bad[0]].item()} in row {bad[0]} of the example batch is outside "
            f"0..{num_classes - 1}, the classes of the model's {num_classes} logits"
        )
    broken = (~logits.isfinite()).any(dim=1).nonzero().flatten().tolist()
    if broken:
        raise ValueError(f"the logits of row {broken[0]} of the example batch are not finite")


def wrong_gradients(model: nn.Module, loss: Callable[[], Tensor], tolerance: float) -> list[str]:
    """Parameters whose gradient disagrees with finite differences, in the model's order.

    Returns:
        `NAME is 2.00 x`, the factor being analytic / numeric along the tried direction.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
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


def frozen(model: nn.Module) -> nn.Module:
    """Evaluation mode, but with a backward: cuDNN has none for recurrent layers in it."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.training, module.dropout = True, 0.0
    return model
