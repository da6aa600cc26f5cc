"""Stops at once, and leaves no checkpoint behind, when training has produced a NaN or an infinity.

Nothing is read from the device at every step: losses are kept on the device, and a gradient
that is not finite shows in the weights after its step, for good. Both are looked at every n steps
and before every checkpoint, so that the newest checkpoint is always a good state to replay from.
"""

import math
from typing import Annotated, Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from callbacks.module_contract import SeesLosses, steps_done

MAX_SKIPPED = 20  # steps that a gradient scaler may leave out in a row


class NonFiniteError(RuntimeError):
    """Training cannot go on: a loss, a gradient or a weight is NaN or infinite.

    Args:
        text: What happened.
        between_steps: The last optimizer step after which all was well, and the first after which
            it was not.
    """

    def __init__(self, text: str, between_steps: tuple[int, int]) -> None:
        super().__init__(text)
        self.between_steps = between_steps


class NonFinite(pl.Callback):
    """Looks for values that are not finite.

    Args:
        enabled: Whether to look at all.
        every_n_steps: Batches between two looks.
    """

    def __init__(self, enabled: bool = True, every_n_steps: Annotated[int, ">= 1"] = 50) -> None:
        self.every_n_steps = every_n_steps
        self.good_step = 0
        self.peak_scale = self.last_scale = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.good_step = steps_done(trainer)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if (batch_idx + 1) % self.every_n_steps == 0 or trainer.is_last_batch:
            self.look(trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            loss = trainer.callback_metrics.get("val/loss")
            self.look(trainer, pl_module, loss is None or math.isfinite(loss))

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if trainer.state.fn == "fit":
            self.look(trainer, pl_module)

    def look(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, is_fine: bool = True
    ) -> None:
        """Ends training on all ranks if any of them has a value that is not finite.

        Raises:
            NonFiniteError: With the steps between which it happened and what to try.
        """
        weights = [p.detach() for p in pl_module.parameters() if holds_fractions(p)]
        is_fine = is_fine and are_finite(weights)
        reason = "a loss, a gradient or a weight became NaN or infinite"
        if trainer.scaler is None:
            if isinstance(pl_module, SeesLosses):
                is_fine = is_fine and pl_module.losses_are_finite()
        elif self.skips_too_often(trainer.scaler.get_scale()):
            is_fine, reason = False, f"the gradient scaler left out {MAX_SKIPPED} steps in a row"
        if trainer.strategy.reduce_boolean_decision(not is_fine, all=False):
            raise NonFiniteError(
                f"{reason} in epoch {trainer.current_epoch}, between steps {self.good_step} and "
                f"{steps_done(trainer)}; checkpoints written before are kept. Try a lower "
                f"--optimizer.lr or --gradient_clip_val 1.0{safer_precision(trainer.precision)}",
                (self.good_step, steps_done(trainer)),
            )
        self.good_step = steps_done(trainer)

    def skips_too_often(self, scale: float) -> bool:
        """Whether the loss scale has only been halved for too long; single skips are normal."""
        if scale >= self.last_scale:
            self.peak_scale = scale
        self.last_scale = scale
        return scale <= self.peak_scale / 2**MAX_SKIPPED


def safer_precision(precision: str) -> str:
    """Advice where numbers are short; "16-true" moreover scales no loss, and loses gradients."""
    if precision in ("32-true", "64-true"):
        return ""
    other = "16-mixed, bf16-true" if precision == "16-true" else "bf16-mixed"
    others = "32-true" if precision == "bf16-mixed" else f"{other} or 32-true"
    return f", or --precision {others} instead of {precision}"


def holds_fractions(tensor: Tensor) -> bool:
    """Whether a value of it can be infinite; some quantized weights are integers."""
    return tensor.is_floating_point() or tensor.is_complex()


def are_finite(tensors: list[Tensor]) -> bool:
    """One value is read from the device: the largest magnitude, which a NaN also spoils."""
    if not tensors:
        return True
    largest = torch.stack(list(torch._foreach_norm(tensors, math.inf)))
    return bool(torch.isfinite(largest).all())
