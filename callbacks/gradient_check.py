"""Gradient check: is the backward right before training, are gradients healthy during it.

Before the fit a copy of the model is compared with finite differences (by a function handed in);
during it every n-th optimizer step is measured by layer. Nothing here changes training.

N batch, C channels, L tokens, D features, P parameters.
"""

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch._dynamo import OptimizedModule
from torch.nn.parallel import DistributedDataParallel

from callbacks.run_contract import Run
from preprocessing.inputs import values_of

WHOLE = "(all)"  # the row of the whole model
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Hardswish)
FAULTS = {  # measurements in a row that must show it, and a remedy
    "vanishing": (2, "add normalisation or residual connections, or change the activation"),
    "exploding": (1, "lower --optimizer.lr, or clip: --gradient_clip_val 1"),
    "dead": (2, "lower --optimizer.lr, or use LeakyReLU or GELU"),
}


# model, batch, device, tolerance, loss, whether all must learn -> lines to print; or ValueError
ModelCheck = Callable[[nn.Module, Any, torch.device, float, nn.Module, bool], list[str]]


class Layer(NamedTuple):
    """One measurement of a layer; NaN where a value does not apply."""

    layer: str
    gradient_norm: float = math.nan  # before clipping, unscaled
    clipped_norm: float = math.nan
    update_ratio: float = math.nan  # norm of the weights' change / norm of the weights
    dead_share: Annotated[float, "0 <= x <= 1"] = (
        math.nan
    )  # units that are 0 for every sample of the batch


class GradientCheck(pl.Callback):
    """Stops before training at a wrong backward; reports unhealthy gradients during training.

    Args:
        run: In whose folder gradients.csv is kept.
        check_model: Compares a copy of a model with finite differences.
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
        check_model: ModelCheck | None,
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
        self.check_model = check_model
        self.measures = False
        self.optimizer_hooks: list[Any] = []
        self.activation_hooks: list[Any] = []  # only while a step is measured
        self.dead: dict[str, Tensor] = {}
        self.step: StepNorms | None = None
        self.streaks: dict[tuple[str, str], int] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
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
            drop_rows_from(self.folder / "gradients.csv", trainer.global_step)

    def compare(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Checks the model on rank 0; where it is wrong, every rank ends.

        Raises:
            ValueError: It is.
        """
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if self.check_model is None or data is None:
            return
        wrapped, failure, all_must_learn = trainer.strategy.model, None, False
        if isinstance(wrapped, DistributedDataParallel):
            all_must_learn = not wrapped.find_unused_parameters
        if trainer.is_global_zero:
            model, batch, loss = pl_module.model, data.example_batch(), pl_module.criterion
            how = pl_module.device, self.tolerance, loss, all_must_learn
            try:
                for line in self.check_model(model, batch, *how):
                    pl_module.print(f"gradient check: {line}")
            except Exception as error:
                failure = error
        message = trainer.strategy.broadcast(failure and str(failure))
        if failure is not None:
            raise failure
        if message is not None:
            raise ValueError(message)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.measures and trainer.global_step % self.every_n_steps == 0:
            self.dead = {}
            for name, module in pl_module.model.named_modules():
                if isinstance(module, ACTIVATIONS):
                    hook = module.register_forward_hook(dead_units_hook(self.dead, name))
                    self.activation_hooks.append(hook)
            if is_compiled(pl_module.model):  # there hooks stay in for good, or are never called
                with trainer.precision_plugin.train_step_context():
                    run_uncompiled(pl_module.model, batch[0])
                self.remove_activation_hooks()

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
        self.remove_activation_hooks()
        step, self.step = self.step, None
        if step is not None and step.columns:
            self.report(trainer, pl_module, trainer.global_step - 1, step.layers(self.dead))

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.remove_activation_hooks()
        for hook in self.optimizer_hooks:
            hook.remove()
        self.optimizer_hooks = []

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        self.on_train_end(trainer, pl_module)

    def remove_activation_hooks(self) -> None:
        for hook in self.activation_hooks:
            hook.remove()
        self.activation_hooks = []

    def report(
        self, trainer: pl.Trainer, pl_module: Any, step: int, layers: Sequence[Layer]
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


class StepNorms:
    """Norms around one optimizer step; holds a copy of the weights until the step is done."""

    def __init__(self, model: nn.Module) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.grad is not None]
        self.names = [name.rpartition(".")[0] for name, _ in named]
        self.parameters = [p for _, p in named]
        self.weights = [p.detach().clone() for p in self.parameters]
        self.before = norms([p.grad for p in self.parameters])
        self.columns: list[Tensor] = []

    @torch.no_grad()
    def finish(self, was_scaled: bool) -> None:
        """Called after the step. A fused optimizer unscales in it, and then nothing was clipped."""
        after = norms([p.grad for p in self.parameters])
        changes = [p - weight for p, weight in zip(self.parameters, self.weights, strict=True)]
        before = after if was_scaled else self.before
        self.columns = [before, after, norms(changes), norms(self.weights)]

    def layers(self, dead: dict[str, Tensor]) -> list[Layer]:
        """All that was measured, copied from the device at once; the whole model comes first."""
        flat = torch.cat([*self.columns, *(share.float().view(1) for share in dead.values())]).cpu()
        table, shares = flat[: 4 * len(self.names)].view(4, -1), flat[4 * len(self.names) :]
        layers = []
        for layer in [WHOLE, *dict.fromkeys(self.names)]:
            members = [layer in (WHOLE, name) for name in self.names]
            gradient, clipped, change, size = table[:, members].norm(dim=1).tolist()
            layers.append(Layer(layer, gradient, clipped, change / size if size else math.nan))
        dead_layers = zip(dead, shares.tolist(), strict=True)
        return layers + [Layer(name, dead_share=share) for name, share in dead_layers]


def is_compiled(model: nn.Module) -> bool:
    """Whether torch.compile runs the model or a part of it."""
    return any(
        module._compiled_call_impl is not None or isinstance(module, OptimizedModule)
        for module in model.modules()
    )


@torch.no_grad()
def run_uncompiled(model: nn.Module, inputs: Any) -> None:
    """One forward pass for the hooks' sake; random state and buffers stay as they are."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with isolate_rng(), torch.compiler.set_stance("force_eager"):
        _ = model(*values_of(inputs))
    for buffer, value in buffers:
        buffer.copy_(value)


def norms(tensors: list[Any]) -> Tensor:
    """L2 norm of each, float32 [P]."""
    # half precision is summed in float32; what is wider cannot be narrowed before the sum
    is_wide = any(x.dtype == torch.float64 or x.is_complex() for x in tensors)
    found = torch._foreach_norm(tensors, 2, dtype=None if is_wide else torch.float32)
    return torch.stack([norm.float() for norm in found])


def dead_units_hook(dead: dict[str, Tensor], name: str) -> Callable[[Any, Any, Tensor], None]:
    """Notes the share of units that are 0 for all samples and positions of the output."""

    def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
        size = output.detach().abs()
        axes = (1, 2) if size.ndim == 3 else (1,)  # of three, units may be [N,C,L] or [N,L,D]
        others = [[d for d in range(size.ndim) if d != axis] for axis in axes]
        shares = [(size.amax(dims) < 1e-6).float().mean() for dims in others]
        dead[name] = torch.stack(shares).max()

    return hook


def drop_rows_from(path: Path, step: int) -> None:
    """Forgets what a resumed run is about to measure again."""
    if path.is_file():
        header, *rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [row for row in rows if int(row.partition(",")[0]) < step]
        path.write_text("".join([header, *kept]), encoding="utf-8")
