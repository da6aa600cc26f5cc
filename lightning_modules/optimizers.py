"""Optimizers: weight decay only where it belongs, fused kernels where they are safe."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

OptimizerName = Literal["adamw", "sgd"]
FALLBACK_LR = {"adamw": 1e-3, "sgd": 5e-2}


@runtime_checkable
class HasParameterGroups(Protocol):
    """A network whose parts learn at rates of their own; any network may be one."""

    def parameter_groups(self) -> Sequence[Mapping[str, Any]]:
        """All parameters, each in one group.

        A group has `params` and may have `lr_scale`, its rate as a share of --optimizer.lr, which
        rate finder and schedule keep, and options of the optimizer such as `weight_decay`.
        """
        ...


def build_optimizer(
    module: nn.Module,
    fused: bool,
    name: OptimizerName = "adamw",
    lr: Annotated[float, "> 0"] | Literal["auto"] = "auto",
    weight_decay: Annotated[float, ">= 0"] = 0.01,
    momentum: Annotated[float, "0 <= x < 1"] = 0.9,
    beta2: Annotated[float, "0 <= x < 1"] = 0.999,
    backbone_lr_scale: Annotated[float, "> 0"] = 1.0,
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
        backbone_lr_scale: Rate of all layers but the last, as a share of lr.

    Raises:
        ValueError: Groups of the network that do not fit it.
    """
    rate = FALLBACK_LR[name] if lr == "auto" else lr
    groups = []
    for group in parameter_groups(module, backbone_lr_scale):
        own = {"lr_scale": 1.0, **group}
        own["lr"] = rate * own["lr_scale"]
        matrices = [p for p in group["params"] if p.ndim > 1]
        vectors = [p for p in group["params"] if p.ndim <= 1]
        for parameters, decay in ((matrices, weight_decay), (vectors, 0.0)):
            if parameters:
                groups.append({"weight_decay": decay, **own, "params": parameters})
    groups.sort(key=lambda group: group["lr_scale"] != 1)  # the first one's rate is what is logged
    if name == "sgd":
        return SGD(groups, lr=rate, momentum=momentum, nesterov=momentum > 0, fused=fused)
    return AdamW(groups, lr=rate, betas=(momentum, beta2), fused=fused)


def parameter_groups(module: nn.Module, backbone_lr_scale: float) -> Sequence[Mapping[str, Any]]:
    """The network's own groups, or all but the last layer and that layer, or all parameters.

    Raises:
        ValueError: Own groups leave a parameter out, name one twice, or have a bad scale.
    """
    own = [part for part in (module, *module.children()) if isinstance(part, HasParameterGroups)]
    if not own and backbone_lr_scale == 1:
        return [{"params": list(module.parameters())}]
    if not own:
        layers = [part for part in module.modules() if list(part.parameters(recurse=False))]
        head = list(layers[-1].parameters(recurse=False))
        rest = [p for p in module.parameters() if not any(p is one for one in head)]
        return [{"params": head}, {"params": rest, "lr_scale": backbone_lr_scale}]
    if backbone_lr_scale != 1:
        raise ValueError(
            f"--optimizer.backbone_lr_scale {backbone_lr_scale}: {type(own[0]).__name__} has "
            "parameter_groups() of its own, which say the rates; leave one of them out"
        )
    groups = [{**group, "params": list(group["params"])} for group in own[0].parameter_groups()]
    check_groups(module, groups, f"{type(own[0]).__name__}.parameter_groups()")
    return groups


def check_groups(module: nn.Module, groups: Sequence[Mapping[str, Any]], what: str) -> None:
    """Raises ValueError unless each parameter is in one group and all scales are above 0."""
    grouped = [id(p) for group in groups for p in group["params"]]
    counts = {name: grouped.count(id(p)) for name, p in module.named_parameters()}
    for names, problem in (
        ([name for name, count in counts.items() if count == 0], "leaves out"),
        ([name for name, count in counts.items() if count > 1], "has more than once"),
    ):
        if names:
            raise ValueError(f"{what} {problem} {', '.join(names)}; each parameter is in one group")
    scales = [group.get("lr_scale", 1.0) for group in groups]
    if not all(math.isfinite(scale) and scale > 0 for scale in scales):
        raise ValueError(f"{what} has lr_scale {scales}; each must be above 0 (to freeze a layer: "
                         "requires_grad_(False) in the network)")  # fmt: skip


def can_fuse(module: nn.Module, precision: str, clips: bool) -> bool:
    """Whether a fused optimizer is safe.

    A fused optimizer unscales float16 gradients inside its step, which hides their true size
    from clipping and gradient checks, and Lightning refuses to clip with one under any mixed
    precision; only CPU and CUDA have fused kernels, and none for complex numbers.
    """
    if precision == "16-mixed" or (clips and precision.endswith("mixed")):
        return False
    return all(
        p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in module.parameters()
    )
