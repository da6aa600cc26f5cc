"""Learning-rate finder: a short sweep before training that leaves nothing behind but a rate.

The range test of Smith (2017, arXiv:1506.01186): train while the rate grows exponentially and see
where the loss falls. The sweep runs on the real weights and optimizer, which are put back exactly
afterwards; the decision, `suggest`, is a function of the curve alone. M points of the curve.
"""

import contextlib
import copy
import itertools
import math
import random
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset

from callbacks.module_contract import ComputesLoss, TunesRate, name_of
from callbacks.run_contract import Run

MIN_POINTS = 10  # a curve with fewer finite losses says nothing
FALL_SHARE = 0.9  # at the suggested rate the loss has made this share of its whole fall
MIN_FALL = 0.05  # a fall below this share of the first loss is no fall
MARGIN = 2.0  # the suggestion keeps this factor below the curve's minimum


class LRFinder(pl.Callback):
    """Finds the peak learning rate where the optimizer's rate is `auto`.

    Args:
        run: In whose folder lr_finder.csv and lr_finder.png are kept.
        enabled: Whether to look for a rate; otherwise the optimizer's default stays.
        min_lr: First rate of the sweep.
        max_lr: Last rate of the sweep, unless the loss explodes before.
        num_steps: Number of rates, one training step each, equally far apart in log10.
        min_batches: With fewer different batches the curve says little and the default stays.
        smoothing: Width of the smoothing, in decades of the rate.
        divergence_factor: The sweep ends where the loss is this many times the first loss.
    """

    def __init__(
        self,
        run: Run,
        enabled: bool = True,
        min_lr: Annotated[float, "> 0"] = 1e-6,
        max_lr: Annotated[float, "> 0"] = 1.0,
        num_steps: Annotated[int, ">= 10"] = 100,
        min_batches: Annotated[int, ">= 1"] = 10,
        smoothing: Annotated[float, "> 0"] = 0.15,
        divergence_factor: Annotated[float, "> 1"] = 4.0,
    ) -> None:
        if min_lr >= max_lr:
            raise ValueError(f"--lr_finder needs min_lr {min_lr} < max_lr {max_lr}")
        self.lrs = np.geomspace(min_lr, max_lr, num_steps)
        self.min_batches = min_batches
        self.smoothing, self.divergence_factor = smoothing, divergence_factor
        self.lr: float | None = None
        self.folder = run.folder

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not isinstance(pl_module, TunesRate):
            lacks = "set_base_lr" if isinstance(pl_module, ComputesLoss) else "compute_loss"
            trainer.print(f"lr finder: no sweep, {name_of(pl_module)} has no {lacks}")
            return
        if not pl_module.lr_is_auto:
            return
        start, reason = time.perf_counter(), self.why_not(trainer)
        if reason is None:
            with unchanged(pl_module, trainer.optimizers):
                losses = self.sweep(trainer, pl_module)
            self.lr, reason = suggest(self.lrs[: len(losses)], losses, self.smoothing)
            if self.lr is not None:
                pl_module.set_base_lr(self.lr)
            if trainer.is_global_zero:
                self.record(trainer, losses)
            reason += f"; {len(losses)} rates in {time.perf_counter() - start:.1f} s"
        what = "keeps" if self.lr is None or trainer.ckpt_path else "found"
        pl_module.print(f"lr finder: {what} {pl_module.base_lr:.2e} ({reason})")

    def state_dict(self) -> dict[str, Any]:
        return {"lr": self.lr}

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # before optimizer and schedule are built; their own state, restored later, wins
        self.lr = checkpoint.get("callbacks", {}).get(self.state_key, {}).get("lr")
        if isinstance(pl_module, TunesRate) and pl_module.lr_is_auto and self.lr is not None:
            pl_module.set_base_lr(self.lr)

    def why_not(self, trainer: pl.Trainer) -> str | None:
        """The reason not to sweep, the same on every rank; None where nothing stands against it."""
        loader, module = trainer.train_dataloader, trainer.lightning_module
        if not isinstance(module, ComputesLoss):
            return f"no sweep, {name_of(module)} has no compute_loss"
        if not module.automatic_optimization:
            return f"no sweep, {name_of(module)} optimizes by itself"
        if trainer.ckpt_path is not None or trainer.global_step > 0:
            return "the rate of the resumed run"
        if trainer.fast_dev_run or trainer.overfit_batches:  # type: ignore[attr-defined]
            return "no sweep with --fast_dev_run or --overfit_batches"
        if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
            return f"no sweep with {type(trainer.strategy).__name__}, which shards the weights"
        if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
            return "the training data is not a DataLoader over a map-style dataset"
        if (found := trainer.num_training_batches) < self.min_batches:
            return f"{found} training batches are fewer than --lr_finder.min_batches"
        return None

    def sweep(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> list[float]:
        """Trains one step at each rate; returns the losses up to where they explode."""
        scaler = torch.amp.GradScaler(pl_module.device.type) if trainer.scaler is not None else None
        groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
        losses: list[float] = []
        epoch_length = int(trainer.num_training_batches)
        batches = own_batches(trainer.train_dataloader, epoch_length, len(self.lrs))
        with contextlib.closing(batches):
            for lr, batch in zip(self.lrs, batches, strict=True):
                for group in groups:
                    group["lr"] = float(lr) * group.get("lr_scale", 1.0)
                losses.append(sweep_step(trainer, pl_module, batch, scaler))
                if has_diverged(losses, self.divergence_factor):
                    break
        return losses

    def record(self, trainer: pl.Trainer, losses: Sequence[float]) -> None:
        """Writes the curve to the run folder and to the loggers that show pictures."""
        from matplotlib.figure import Figure

        lrs = self.lrs[: len(losses)]
        smoothed = smooth(np.log10(lrs), np.asarray(losses), self.smoothing)
        figure = Figure(figsize=(6, 3.6), layout="constrained")
        axes = figure.add_subplot(xscale="log", xlabel="learning rate", ylabel="training loss")
        axes.plot(lrs, losses, color="tab:blue", alpha=0.3, label="loss")
        axes.plot(lrs, smoothed, color="tab:blue", label="smoothed")
        if self.lr is not None:
            axes.axvline(self.lr, color="tab:red", linestyle="--", label=f"found: {self.lr:.2e}")
        axes.legend()
        if self.folder is not None:
            path, table = self.folder / "lr_finder.csv", np.column_stack([lrs, losses, smoothed])
            np.savetxt(path, table, "%.6g", ",", header="lr,loss,smoothed_loss", comments="")
            figure.savefig(path.with_suffix(".png"), dpi=110)
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_figure("lr_finder", figure)
            elif isinstance(logger, WandbLogger):
                import wandb

                logger.experiment.log({"lr_finder": wandb.Image(figure)})


def suggest(
    lrs: Sequence[float] | np.ndarray, losses: Sequence[float] | np.ndarray, smoothing: float = 0.15
) -> tuple[float | None, str]:
    """Reads a peak rate off a curve [M]: where the loss has made most of its fall; and says why.

    A level is crossed at much the same rate whatever the noise, while the steepest point, the
    minimum and a tenth of the minimum (the usual rules) wander where the curve is flat.
    """
    x, raw = np.log10(np.asarray(lrs, float)), np.asarray(losses, float)
    finite = int(np.cumprod(np.isfinite(raw)).sum())  # how many before the first that is not
    if finite < MIN_POINTS:
        what = "is not finite" if finite < len(raw) else "explodes"
        return None, f"the loss {what} after {finite} rates"
    x, raw = x[:finite], raw[:finite]
    padded = np.pad(raw, 1, mode="edge")  # median of three: a single odd batch is no valley
    curve = smooth(x, np.median([padded[:-2], raw, padded[2:]], axis=0), smoothing)
    noise = 1.4826 * float(np.median(np.abs(raw - curve)))  # of one loss, robust to outliers
    start = float(np.median(curve[: len(curve) // 10 + 2]))
    significant = max(2.5 * noise, MIN_FALL * abs(start))
    lowest = valley(curve, start, significant)
    fall = start - curve[lowest]
    if fall <= significant or lowest < len(curve) // 10:
        what = "only rises" if curve[-1] > start + significant else "stays flat"
        return None, f"the loss {what} from {10 ** x[0]:.0e} to {10 ** x[-1]:.0e}"
    # less the noise, since a minimum over noisy points lies below the true floor
    crossing = x[np.argmax(curve <= start - FALL_SHARE * (fall - noise))]
    if lowest < len(x) - 1:  # what lies behind a minimum that was seen is known to be too much
        crossing = min(crossing, x[lowest] - math.log10(MARGIN))
    at = 10 ** x[lowest]
    return float(10**crossing), f"loss {start:.2f}, lowest {curve[lowest]:.2f} at {at:.0e}"


def valley(curve: np.ndarray, start: float, significant: float) -> int:
    """Index of the first real minimum: after it, half of the fall from `start` is lost again.

    What comes later (a second fall once the weights have been thrown far away) does not count.
    """
    lowest = 0
    for index, value in enumerate(curve):
        lowest = index if value < curve[lowest] else lowest
        fall = start - curve[lowest]
        if fall >= significant and value > curve[lowest] + max(fall / 2, significant):
            break
    return lowest


def smooth(positions: np.ndarray, values: np.ndarray, width: float) -> np.ndarray:
    """Gaussian average [M] with standard deviation `width`: no lag, unlike a running average."""
    finite = np.isfinite(values)
    weights = np.exp(-0.5 * ((positions[:, None] - positions) / width) ** 2) * finite  # [M,M]
    return weights @ np.where(finite, values, 0) / np.maximum(weights.sum(axis=1), 1e-9)


def has_diverged(losses: Sequence[float], factor: float) -> bool:
    """Whether the last loss is not finite, or the last three are far above the first five."""
    if not math.isfinite(losses[-1]):
        return True
    return len(losses) > 5 and float(np.median(losses[-3:])) > factor * abs(
        float(np.median(losses[:5]))
    )


def own_batches(loader: Any, epoch_length: int, num_batches: int) -> Generator[Any, None, None]:
    """Training batches by a loader of its own; a short epoch is gone through repeatedly.

    The loop's loader, order and workers stay as they are: the batch sampler is copied (without
    the data), and these workers end with the iterator.
    """
    sampler = copy.deepcopy(loader.batch_sampler, {id(loader.dataset): loader.dataset})
    epochs = (itertools.islice(sampler, epoch_length) for _ in itertools.count())
    own = DataLoader(
        loader.dataset,
        batch_sampler=list(itertools.islice(itertools.chain.from_iterable(epochs), num_batches)),
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        multiprocessing_context=loader.multiprocessing_context,
        worker_init_fn=loader.worker_init_fn,
        prefetch_factor=loader.prefetch_factor,
        generator=torch.Generator(),
    )
    yield from getattr(loader, "watched", iter)(own)


def sweep_step(
    trainer: pl.Trainer, module: Any, batch: Any, scaler: torch.amp.GradScaler | None
) -> float:
    """One optimizer step outside Lightning's loop; returns the loss, averaged over all ranks."""
    batch = trainer.strategy.batch_to_device(trainer.precision_plugin.convert_input(batch))
    with trainer.precision_plugin.train_step_context():
        loss = module.compute_loss(batch)[0].mean()
    module.zero_grad()
    (loss if scaler is None else scaler.scale(loss)).backward()
    if trainer.world_size > 1:
        average_gradients(trainer, module)
    for optimizer in trainer.optimizers:
        if scaler is not None:
            scaler.unscale_(optimizer)
        module.clip_gradients(optimizer)
        _ = optimizer.step() if scaler is None else scaler.step(optimizer)
    if scaler is not None:
        scaler.update()
    return float(trainer.strategy.reduce(loss.detach().float(), reduce_op="mean"))


def average_gradients(trainer: pl.Trainer, module: pl.LightningModule) -> None:
    """What DDP's wrapper would do; the sweep calls the module inside it."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([gradient.float().flatten() for gradient in gradients])
    parts = trainer.strategy.reduce(flat, reduce_op="mean").split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter).to(parameter.dtype)


@contextlib.contextmanager
def unchanged(module: pl.LightningModule, optimizers: Sequence[Optimizer]) -> Iterator[None]:
    """Puts weights, buffers, gradients, optimizer, modes and random state back, come what may."""
    tensors = [(x, x.detach().clone()) for x in (*module.parameters(), *module.buffers())]
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    modes = [(part, part.training) for part in module.modules()]
    states = [{p: copy.deepcopy(memory) for p, memory in o.state.items()} for o in optimizers]
    groups = [(g, copy.deepcopy({**g, "params": []})) for o in optimizers for g in o.param_groups]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    module.zero_grad()  # to None, so the gradients kept above stay as they are
    try:
        with torch.random.fork_rng([module.device] if module.on_gpu else []):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        with torch.no_grad():
            for tensor, value in tensors:
                tensor.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for part, mode in modes:
            part.training = mode
        for optimizer, state in zip(optimizers, states, strict=True):
            optimizer.state.clear()
            optimizer.state.update(state)
        for group, settings in groups:
            group.update({**settings, "params": group["params"]})
