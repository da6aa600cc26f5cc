"""Gradient check: is the backward right before training, are gradients healthy during it.

Before the fit a copy of the module is compared with finite differences; during it every n-th step
is measured by layer, that of each optimizer for itself. Nothing here changes training.
"""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch._dynamo import OptimizedModule
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from callbacks.finite_differences import check_gradients
from callbacks.gradient_norms import (
    WHOLE,
    Layer,
    StepNorms,
    dead_layers,
    dead_units_hook,
    trained_by,
)
from callbacks.module_contract import ComputesLoss, layer_name, name_of, steps_done
from callbacks.run_contract import Run

ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Hardswish)
FAULTS = {  # measurements in a row that must show it, and a remedy
    "vanishing": (2, "add normalisation or residual connections, or change the activation"),
    "exploding": (1, "lower --optimizer.lr, or clip: --gradient_clip_val 1"),
    "dead": (2, "lower --optimizer.lr, or use LeakyReLU or GELU"),
}


class GradientCheck(pl.Callback):
    """Stops before training at a wrong backward; reports unhealthy gradients during training.

    Args:
        run: In whose folder gradients.csv is kept.
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
        run: Run,
        enabled: bool = True,
        before_fit: bool = True,
        every_n_steps: Annotated[int, ">= 1"] = 50,
        tolerance: Annotated[float, "0 < x < 1"] = 0.01,
        vanishing_ratio: Annotated[float, "0 <= x < 1"] = 1e-5,
        exploding_norm: Annotated[float, "> 0"] = 1e3,
        dead_share: Annotated[float, "0 <= x <= 1"] = 0.5,
    ) -> None:
        self.before_fit = before_fit
        self.every_n_steps = every_n_steps
        self.tolerance = tolerance
        self.vanishing_ratio = vanishing_ratio
        self.exploding_norm = exploding_norm
        self.dead_share = dead_share
        self.folder = run.folder
        self.measures = False
        self.is_due = False  # in this step
        self.optimizer_hooks: list[Any] = []
        self.activation_hooks: list[Any] = []  # only while a step is measured
        self.dead: dict[str, Tensor] = {}
        self.steps: dict[Optimizer, StepNorms] = {}  # of this batch
        self.streaks: dict[tuple[str, str], int] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.before_fit and trainer.global_step == 0:
            self.compare(trainer, pl_module)
        if not trainer.is_global_zero:
            return  # rank 0 works alone: no collective may follow
        # elsewhere a rank holds only a part of each weight
        self.measures = isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy))
        if self.measures:
            hooks = [o.register_step_post_hook(self.after_step) for o in trainer.optimizers]
            self.optimizer_hooks = hooks
        if self.folder is not None and trainer.global_step > 0:
            drop_rows_from(self.folder / "gradients.csv", steps_done(trainer))

    def compare(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Checks the module on rank 0; where it is wrong, every rank ends.

        Raises:
            ValueError: It is.
        """
        if not isinstance(pl_module, ComputesLoss):
            name = name_of(pl_module)
            trainer.print(f"gradient check: no finite differences, {name} has no compute_loss")
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if data is None:
            return
        wrapped, failure, all_must_learn = trainer.strategy.model, None, False
        if isinstance(wrapped, DistributedDataParallel):
            all_must_learn = not wrapped.find_unused_parameters
        if trainer.is_global_zero:
            how = pl_module.device, self.tolerance, all_must_learn
            try:
                for line in check_gradients(pl_module, data.example_batch(), *how):
                    pl_module.print(f"gradient check: {line}")
            except Exception as error:
                failure = error
        message = trainer.strategy.broadcast(failure and str(failure))
        if failure is not None:
            raise failure
        if message is not None:
            raise ValueError(message)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.is_due = self.measures and steps_done(trainer) % self.every_n_steps == 0
        if not self.is_due:
            return
        self.dead = {}
        trained = [n for n, one in pl_module.named_children() if is_trained(one)]
        for name, part in pl_module.named_modules():
            if isinstance(part, ACTIVATIONS) and name.partition(".")[0] in trained:
                hook = part.register_forward_hook(dead_units_hook(self.dead, layer_name(name)))
                self.activation_hooks.append(hook)
        if is_compiled(pl_module):  # there hooks stay in for good, or are never called
            if isinstance(pl_module, ComputesLoss):
                with trainer.precision_plugin.train_step_context():
                    run_uncompiled(pl_module, batch)
            self.remove_activation_hooks()

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        if not self.is_due or optimizer in self.steps:  # of several in a batch the first
            return
        index, is_only = trainer.optimizers.index(optimizer), len(trainer.optimizers) == 1
        if named := trained_by(optimizer, pl_module):
            whole = WHOLE if is_only else f"{WHOLE} of optimizer {index}"
            self.steps[optimizer] = StepNorms(named, whole)

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Runs inside the optimizer's step, so a step that a GradScaler leaves out is not seen."""
        step = self.steps.get(optimizer)
        if step is not None and not step.columns:
            step.finish(was_scaled=getattr(optimizer, "grad_scale", None) is not None)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any
    ) -> None:
        self.remove_activation_hooks()
        steps, self.steps = self.steps, {}
        measured = [steps[one] for one in trainer.optimizers if one in steps and steps[one].columns]
        layers = [layer for step in measured for layer in step.layers()]
        if layers:
            layers += dead_layers(self.dead)
            self.report(trainer, pl_module, steps_done(trainer) - 1, layers)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.remove_activation_hooks()
        for hook in self.optimizer_hooks:
            hook.remove()
        self.optimizer_hooks = []

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        self.on_train_end(trainer, pl_module)

    def remove_activation_hooks(self) -> None:
        for hook in self.activation_hooks:
            hook.remove()
        self.activation_hooks = []

    def report(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, step: int, layers: Sequence[Layer]
    ) -> None:
        """Writes a measurement to gradients.csv and the loggers, and says what is wrong."""
        for line in self.verdicts(layers):
            pl_module.print(f"gradient check: step {step}: {line}")
        if self.folder is not None:
            path = self.folder / "gradients.csv"
            header = [] if path.exists() else [("step", *Layer._fields)]
            with path.open("a", newline="", encoding="utf-8") as file:
                rows = ((step, x.layer, *(f"{value:.6g}" for value in x[1:])) for x in layers)
                csv.writer(file).writerows([*header, *rows])
        for logger in trainer.loggers:
            if isinstance(logger, (TensorBoardLogger, WandbLogger)):
                columns = [(x.layer, zip(Layer._fields[1:], x[1:], strict=True)) for x in layers]
                values = {f"{n}/{layer}": v for layer, pairs in columns for n, v in pairs}
                logger.log_metrics({k: v for k, v in values.items() if v == v}, step=step)

    def verdicts(self, layers: Sequence[Layer]) -> list[str]:
        """One line for each kind of fault that is new; a layer is named once for each kind."""
        largest = max(
            (x.gradient_norm for x in layers if math.isfinite(x.gradient_norm)), default=0
        )
        lines = []
        for kind, (patience, remedy) in FAULTS.items():
            named = []
            for x in layers:
                value = x.dead_share if kind == "dead" else x.gradient_norm
                is_wrong = {
                    "vanishing": value < self.vanishing_ratio * largest,
                    "exploding": not value <= self.exploding_norm and math.isnan(x.dead_share),
                    "dead": value > self.dead_share,
                }[kind]
                streak = self.streaks.get((kind, x.layer), 0)
                if streak < patience:  # else it has been said
                    self.streaks[kind, x.layer] = streak = streak + 1 if is_wrong else 0
                    named += [f"{x.layer} {value:.2g}"] if streak == patience else []
            if named:
                lines.append(f"{kind}: {', '.join(named)}; {remedy}")
        return lines


def is_trained(module: nn.Module) -> bool:
    """Whether any of its weights is; a frozen teacher is not."""
    return any(p.requires_grad for p in module.parameters())


def is_compiled(model: nn.Module) -> bool:
    """Whether torch.compile runs the model or a part of it."""
    return any(
        module._compiled_call_impl is not None or isinstance(module, OptimizedModule)
        for module in model.modules()
    )


@torch.no_grad()
def run_uncompiled(module: Any, batch: Any) -> None:
    """One forward pass for the hooks' sake; random state and buffers stay as they are."""
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with isolate_rng(), torch.compiler.set_stance("force_eager"):
        module.compute_loss(batch)
    for buffer, value in buffers:
        buffer.copy_(value)


def drop_rows_from(path: Path, step: int) -> None:
    """Forgets what a resumed run is about to measure again."""
    if path.is_file():
        header, *rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [row for row in rows if int(row.partition(",")[0]) < step]
        path.write_text("".join([header, *kept]), encoding="utf-8")
