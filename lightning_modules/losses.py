"""Cross-entropy a sample, with label smoothing and class weights."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor, nn


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
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"--loss.label_smoothing must be in [0, 1), got {label_smoothing}")
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
