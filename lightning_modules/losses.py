"""The loss of each sample: cross-entropy, or one of the user's own by its import path; and what a
task keeps of a sample, computed beside it.

A loss is a function, or a class whose instances are called, of logits [N,K] and targets: int64 [N],
or shares float32 [N,K] where mixup or CutMix is on. What a function takes beside these two, and
what a class is built with, are flags.

N batch, K classes, M training samples.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lightning_modules.deployed import resolve
from tasks.single_label_outcomes import TOP_K

LOSSES = {"cross_entropy": "lightning_modules.losses.ClassificationLoss"}
FROM_DATA = frozenset({"num_classes", "train_targets"})

CONTRACT = "f(logits [N,K], targets) -> losses [N]"

Loss = Callable[[Tensor, Tensor], Tensor]


class SampleLoss(nn.Module):
    """Holds a loss to its contract.

    Args:
        name: Of the loss, for messages.
        function: float [N,K] and targets -> [N].
    """

    def __init__(self, name: str, function: Loss) -> None:
        super().__init__()
        self.name = name
        self.function = function

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """float [N,K] and int64 [N] (or float [N,K]) -> float32, or float64, [N].

        Raises:
            ValueError: The loss gives something else.
        """
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses: Any = self.function(logits, targets)
        given = f"logits {list(logits.shape)} and targets {list(targets.shape)}"
        check_losses(losses, targets, f"loss {self.name}", given, CONTRACT)
        return losses


def check_losses(losses: Any, targets: Tensor, what: str, given: str, contract: str) -> None:
    """Refuses what is not one loss a sample.

    Raises:
        ValueError: With the shapes, and the line of the contract.
    """
    if not isinstance(losses, Tensor) or losses.shape != targets.shape[:1]:
        found = list(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"{what} gives {found} for {given}; expected the loss of each sample, "
            f"{[len(targets)]} (for a mean over the batch: reduction='none'; for too many axes: "
            f"squeeze(1)), as {contract}"
        )


def loss_callable(name: str, allow_external_code: bool = False) -> Callable[..., Any]:
    """The class or function behind a short name of `LOSSES` or an import path.

    Raises:
        ValueError: It cannot be called with logits and targets.
    """
    found = resolve(LOSSES.get(name, name), allow_external_code)
    if not callable(found) or not (isinstance(found, type) or len(positional(found)) == 2):
        raise ValueError(f"{name!r} is no loss: expected f(logits, targets), or a class of such")
    return found


def positional(function: Callable[..., Any]) -> frozenset[str]:
    """The names of a function's first two arguments, which are no flags."""
    return frozenset([*inspect.signature(function).parameters][:2])


def build_loss(
    num_classes: int,
    train_targets: np.ndarray,
    name: str = "cross_entropy",
    allow_external_code: bool = False,
    **arguments: Any,
) -> SampleLoss:
    """Builds the loss.

    Args:
        num_classes: K; for a class that asks for it.
        train_targets: int64 [M]; likewise.
        name: cross_entropy or an import path.
        allow_external_code: Whether that may lead outside of the project.
        arguments: What else it takes.

    Raises:
        ValueError: A bad value, or a loss with weights, which no optimizer would see.
    """
    found = loss_callable(name, allow_external_code)
    if not isinstance(found, type):
        return SampleLoss(name, functools.partial(found, **arguments))
    asked = inspect.signature(found).parameters.keys()
    data = {"num_classes": num_classes, "train_targets": train_targets}
    loss = SampleLoss(name, found(**{k: v for k, v in data.items() if k in asked}, **arguments))
    if weights := [parameter.partition(".")[2] for parameter, _ in loss.named_parameters()]:
        raise ValueError(
            f"loss {name} has parameters ({', '.join(weights)}), which the optimizer of the "
            "network does not train: make them buffers, or a part of the network"
        )
    return loss


class ClassificationLoss(nn.Module):
    """Loss of each sample, so that the caller can average over exactly the right count.

    Args:
        num_classes: K.
        train_targets: int64 [M], training targets; weights are scaled to a mean of 1 over them.
        label_smoothing: Share of the target spread over all classes (Szegedy et al. 2016).
        class_weights: "balanced" (inverse frequency), or one weight a class; None is off.

    Raises:
        ValueError: Smoothing outside [0, 1), or weights that do not fit the classes.
    """

    def __init__(
        self,
        num_classes: int,
        train_targets: np.ndarray,
        label_smoothing: Annotated[float, "0 <= x < 1"] = 0.0,
        class_weights: Literal["balanced"] | list[Annotated[float, ">= 0"]] | None = None,
    ) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        # no buffer: those are rounded to the run's precision
        self.class_weights: Tensor | None = None
        if class_weights is not None:
            counts = np.bincount(train_targets, minlength=num_classes)
            self.class_weights = torch.from_numpy(scaled_class_weights(class_weights, counts))

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """float [N,K] and int64 [N] (or float [N,K]) -> [N], float32 or what is wider."""
        dtype = torch.promote_types(logits.dtype, torch.float32)
        if self.class_weights is not None:  # copied once; later this gives the same tensor back
            self.class_weights = self.class_weights.to(logits.device, dtype)
        return nn.functional.cross_entropy(
            logits.to(dtype),
            targets.to(dtype) if targets.is_floating_point() else targets,
            weight=self.class_weights,
            reduction="none",
            label_smoothing=self.label_smoothing,
        )


def scaled_class_weights(
    wanted: Literal["balanced"] | Sequence[float], counts: np.ndarray
) -> np.ndarray:
    """float64 [K] with a mean of 1 over the samples, given int64 [K] sample counts."""
    num_classes = len(counts)
    if isinstance(wanted, str):
        if not counts.all():
            raise ValueError("--loss.class_weights balanced: a class has no training sample")
        weights = 1.0 / counts
    else:
        weights = np.asarray(wanted, dtype=np.float64)
        if len(weights) != num_classes or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(
                f"--loss.class_weights needs {num_classes} finite values >= 0, got {list(wanted)}"
            )
    mean = (weights * counts).sum() / counts.sum()
    if not mean > 0:
        raise ValueError(f"--loss.class_weights must not all be zero, got {list(wanted)}")
    return weights / mean


# ---- outcomes -----------------------------------------------------------------------------


@torch.no_grad()
def single_label_outcomes(logits: Tensor, targets: Tensor, losses: Tensor) -> dict[str, Tensor]:
    """What became of each sample of a batch.

    Args:
        logits: float [N,K].
        targets: int64 [N], or float [N,K] (soft targets count as their likeliest class).
        losses: float [N].

    Returns:
        The fields of the task's row, [N] each, and "scores" float32 [N,K], the probabilities.
    """
    if targets.ndim == 2:
        targets = targets.argmax(dim=1)
    probabilities = logits.float().softmax(dim=1)
    confidences, packed = probabilities.max(dim=1)
    packed *= 2
    if logits.shape[1] > TOP_K:
        likeliest = logits.topk(TOP_K, dim=1).indices
        packed += (likeliest == targets[:, None]).any(dim=1)
    else:
        packed += 1
    return {
        "target": targets,
        "prediction": packed,
        "confidence": confidences,
        "loss": losses,
        "scores": probabilities,
    }


# by the name of the task; what goes in is detached
OUTCOMES: dict[str, Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]] = {
    "single_label": single_label_outcomes,
}
