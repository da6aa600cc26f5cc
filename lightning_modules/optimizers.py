"""Optimizers: weight decay only where it belongs, fused kernels where they are safe."""

from typing import Annotated, Literal

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

OptimizerName = Literal["adamw", "sgd"]
FALLBACK_LR = {"adamw": 1e-3, "sgd": 5e-2}


def build_optimizer(
    module: nn.Module,
    fused: bool,
    name: OptimizerName = "adamw",
    lr: Annotated[float, "> 0"] | Literal["auto"] = "auto",
    weight_decay: Annotated[float, ">= 0"] = 0.01,
    momentum: Annotated[float, "0 <= x < 1"] = 0.9,
    beta2: Annotated[float, "0 <= x < 1"] = 0.999,
) -> Optimizer:
    """Builds the optimizer over all parameters.

    Args:
        module: Its matrices and kernels decay; biases, norms and other vectors do not.
        fused: One kernel for all parameters.
        name: adamw (Loshchilov & Hutter 2019) or sgd (Nesterov momentum).
        lr: Peak rate; auto asks the rate finder.
        weight_decay: Decoupled in adamw, part of the gradient in sgd.
        momentum: Of sgd; adamw's beta1.
        beta2: Of adamw.

    Raises:
        ValueError: A value outside its range.
    """
    if lr != "auto" and not lr > 0:
        raise ValueError(f"--optimizer.lr must be above 0 or auto, got {lr}")
    if weight_decay < 0 or not 0 <= momentum < 1 or not 0 <= beta2 < 1:
        raise ValueError(
            "--optimizer.weight_decay must be >= 0, momentum and beta2 in [0, 1); "
            f"got {weight_decay}, {momentum}, {beta2}"
        )
    rate = FALLBACK_LR[name] if lr == "auto" else lr
    matrices = [p for p in module.parameters() if p.ndim > 1]
    vectors = [p for p in module.parameters() if p.ndim <= 1]
    groups = [
        {"params": parameters, "weight_decay": decay}
        for parameters, decay in ((matrices, weight_decay), (vectors, 0.0))
        if parameters
    ]
    if name == "sgd":
        return SGD(groups, lr=rate, momentum=momentum, nesterov=momentum > 0, fused=fused)
    return AdamW(groups, lr=rate, betas=(momentum, beta2), fused=fused)


def can_fuse(module: nn.Module, precision: str, clips: bool) -> bool:
    """Whether a fused optimizer is safe.

    A fused optimizer unscales float16 gradients inside its step, which hides their true size
    from clipping and gradient checks, and Lightning refuses to clip with one under any mixed
    precision; only CPU and CUDA have fused kernels.
    """
    if precision == "16-mixed" or (clips and precision.endswith("mixed")):
        return False
    return all(p.device.type in ("cpu", "cuda") for p in module.parameters())
