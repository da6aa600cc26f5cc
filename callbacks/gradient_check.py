"""Gradient check: is the backward right before training, are gradients healthy during it.

Before the fit a float64 copy of the model is compared with finite differences on a few samples.
During it every n-th optimizer step is measured by layer. Nothing here changes training.

N batch, K classes, P parameters.
"""

import contextlib
import copy
import csv
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn

MAX_SAMPLES = 8
MAX_DIRECTIONS = 24  # for finite differences; where there are more parameters, some share one
MAX_SECONDS = 3.0  # for all directions; a slow model gets fewer
STEP_SIZES = (1e-4, 1e-3, 1e-5, 1e-6)  # relative to the weights
PATIENCE = 2  # measurements in a row that must show a fault
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Hardswish)
REMEDIES = {
    "vanishing": "add normalisation or residual connections, or change the activation",
    "exploding": "lower --optimizer.lr, or clip: --gradient_clip_val 1",
    "dead": "lower --optimizer.lr, or use LeakyReLU or GELU",
}


class Layer(NamedTuple):
    """One measurement of a layer; NaN where a value does not apply."""

    layer: str
    gradient_norm: float = math.nan  # before clipping, unscaled
    clipped_norm: float = math.nan
    update_ratio: float = math.nan  # norm of the weights' change / norm of the weights
    dead_share: float = math.nan  # units that are 0 for every sample of the batch


class GradientCheck(pl.Callback):
    """Stops before training at a wrong backward; reports unhealthy gradients during training.

    Args:
        enabled: Whether to check at all.
        before_fit: Whether to compare gradients with finite differences before training.
        every_n_steps: Optimizer steps between two measurements.
        tolerance: Relative difference from the finite difference that still counts as right.
        vanishing_ratio: A layer's gradient below this share of the largest layer's is vanishing.
        exploding_norm: A gradient norm above it is exploding.
        dead_share: A larger share of dead units in an activation is reported.
    """

    def __init__(
        self,
        enabled: bool = True,
        before_fit: bool = True,
        every_n_steps: int = 100,
        tolerance: float = 0.01,
        vanishing_ratio: float = 1e-5,
        exploding_norm: float = 1e3,
        dead_share: float = 0.5,
    ) -> None:
        if every_n_steps < 1 or not 0 < tolerance < 1:
            raise ValueError(
                "--gradient_check needs every_n_steps >= 1 and tolerance between 0 and 1; "
                f"got {every_n_steps}, {tolerance}"
            )
        self.enabled = enabled
        self.before_fit = before_fit
        self.every_n_steps = every_n_steps
        self.tolerance = tolerance
        self.vanishing_ratio = vanishing_ratio
        self.exploding_norm = exploding_norm
        self.dead_share = dead_share
        self.folder: Path | None = None
        self.measures = False
        self.optimizer_hooks: list[Any] = []
        self.activation_hooks: list[Any] = []  # only while a step is measured
        self.dead: dict[str, Tensor] = {}
        self.step: StepNorms | None = None
        self.streaks: dict[tuple[str, str], int] = {}

    def bind(self, folder: Path | None) -> None:
        """Says where gradients.csv goes."""
        self.folder = folder

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if not (self.enabled and trainer.is_global_zero):
            return  # rank 0 works alone: no collective may follow
        if self.before_fit and trainer.global_step == 0 and data is not None:
            device = torch.device("cpu") if pl_module.device.type == "mps" else pl_module.device
            with same_random_state(device):
                for line in check_model(pl_module.model, data.example_batch(), device, self.tolerance):
                    self.say(trainer, line)
        self.measures = isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy))
        if self.measures:
            hooks = [o.register_step_post_hook(self.after_step) for o in trainer.optimizers]
            self.optimizer_hooks = hooks

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.measures and trainer.global_step % self.every_n_steps == 0:
            self.dead = {}
            for name, module in pl_module.model.named_modules():
                if isinstance(module, ACTIVATIONS):
                    hook = module.register_forward_hook(dead_units_hook(self.dead, name))
                    self.activation_hooks.append(hook)

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: Any, optimizer: Any) -> None:
        if self.measures and trainer.global_step % self.every_n_steps == 0:
            self.step = StepNorms(pl_module.model)

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Runs inside the optimizer's step, so a step that a GradScaler leaves out is not seen."""
        if self.step is not None:
            self.step.finish(was_scaled=getattr(optimizer, "grad_scale", None) is not None)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        for hook in self.activation_hooks:
            hook.remove()
        step, self.step, self.activation_hooks = self.step, None, []
        if step is not None and step.after is not None:
            self.report(trainer, trainer.global_step - 1, step.layers(self.dead))

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        for hook in self.optimizer_hooks + self.activation_hooks:
            hook.remove()
        self.optimizer_hooks, self.activation_hooks = [], []

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        self.on_train_end(trainer, pl_module)

    def report(self, trainer: pl.Trainer, step: int, layers: Sequence[Layer]) -> None:
        """Writes a measurement to gradients.csv and the loggers, and says what is wrong."""
        for line in self.verdicts(layers):
            self.say(trainer, f"step {step}: {line}")
        if self.folder is not None:
            path = self.folder / "gradients.csv"
            header = [] if path.exists() else [("step", *Layer._fields)]
            with path.open("a", newline="") as file:
                rows = ((step, x.layer, *(f"{value:.6g}" for value in x[1:])) for x in layers)
                csv.writer(file).writerows([*header, *rows])
        for logger in trainer.loggers:
            if isinstance(logger, (TensorBoardLogger, WandbLogger)):
                columns = [(x.layer, zip(Layer._fields[1:], x[1:], strict=True)) for x in layers]
                values = {f"{n}/{layer}": v for layer, pairs in columns for n, v in pairs}
                logger.log_metrics({k: v for k, v in values.items() if v == v}, step=step)

    def verdicts(self, layers: Sequence[Layer]) -> list[str]:
        """One line for each kind of fault that is new; a layer is named once for each kind."""
        largest = max((x.gradient_norm for x in layers if math.isfinite(x.gradient_norm)), default=0)
        lines = []
        for kind, remedy in REMEDIES.items():
            new = []
            for x in layers:
                value, wrong = {
                    "vanishing": (x.gradient_norm, x.gradient_norm < self.vanishing_ratio * largest),
                    "exploding": (x.gradient_norm, x.gradient_norm > self.exploding_norm),
                    "dead": (x.dead_share, x.dead_share > self.dead_share),
                }[kind]
                streak = self.streaks.get((kind, x.layer), 0)
                # once said, the count stands still
                self.streaks[kind, x.layer] = streak + wrong if streak >= PATIENCE else (streak + 1) * wrong
                if wrong and streak == PATIENCE - 1:
                    new.append(f"{x.layer} ({value:.2g})")
            if new:
                lines.append(f"{kind}: {', '.join(new)}; {remedy}")
        return lines

    def say(self, trainer: pl.Trainer, message: str) -> None:
        """Prints one line, above the progress bar where there is one."""
        bar = trainer.progress_bar_callback
        (bar.print if bar else print)(f"gradient check: {message}")
