"""What callbacks expect of the LightningModule that trains: small Protocols, each for one purpose.

None is required: a callback that needs what a module lacks steps aside and says so in one line.
Protocols look for methods, properties and plain attributes of an object, so that what is a
submodule (`deployed`) has to be a property.

N batch, K outputs.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import pytorch_lightning as pl
from torch import Tensor, nn

from tasks.base import Task
from tasks.outcomes import Report

DEPLOYED = "model."  # what the names of a deployed module's weights begin with in a checkpoint


@runtime_checkable
class ComputesLoss(Protocol):
    """The one place where network, loss and outcomes meet; without side effects."""

    def compute_loss(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss of each sample, float [N] with a gradient, and what is kept of each, [N,...]."""
        ...


@runtime_checkable
class TunesRate(Protocol):
    """Its peak learning rate can be set, also after optimizer and schedule were built."""

    lr_is_auto: bool  # whether a rate is wanted
    base_lr: float

    def set_base_lr(self, lr: float) -> None: ...


@runtime_checkable
class NamesMetrics(Protocol):
    """Knows before training what it logs."""

    monitored: list[str]  # names that something goes by; they are shown and drawn

    @property
    def metric_names(self) -> list[str]: ...

    def check_monitor(self, group: str, monitor: str) -> Literal["min", "max"]:
        """Whether smaller or larger is better; ValueError with the nearest name for an unknown."""
        ...


@runtime_checkable
class Reports(Protocol):
    """Keeps what is known of each split after its last epoch."""

    reports: dict[str, Report]  # by split
    task: Task


@runtime_checkable
class Deployable(Protocol):
    """Holds the module that is exported, whose weights a checkpoint has as `model.…`."""

    description: dict[str, Any]  # all that rebuilds the module in a fresh process

    @property
    def deployed(self) -> nn.Module:
        """Raw inputs -> outputs [N,K]."""
        ...


@runtime_checkable
class LogsTraining(Protocol):
    """Can log its figures of an epoch that is cut short."""

    def log_training(self) -> None: ...


@runtime_checkable
class SeesLosses(Protocol):
    """Knows the losses of the epoch so far."""

    def losses_are_finite(self) -> bool:
        """Whether all are, on this rank; reads one value from the device."""
        ...


@runtime_checkable
class KnowsItsEnd(Protocol):
    """A learning-rate schedule that knows whether it may yet lower the rate."""

    @property
    def still_falls(self) -> bool: ...


def name_of(module: pl.LightningModule) -> str:
    """For messages."""
    return type(module).__name__


def main_metric(trainer: pl.Trainer, module: pl.LightningModule) -> str:
    """Of the task that a module names, or else the data; loss without one."""
    data = getattr(trainer, "datamodule", None)
    task = getattr(module, "task", None) or getattr(data, "task", None)
    return task.main_metric if task else "loss"


def layer_name(name: str) -> str:
    """A layer or parameter as messages and tables have it: by its place in what is deployed."""
    return f"{name}.".removeprefix(DEPLOYED).removesuffix(".")


def loss_in(outputs: Any) -> Tensor | None:
    """The loss, detached, in what Lightning hands on of a training step; None without one."""
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return loss.detach() if isinstance(loss, Tensor) else None


def steps_done(trainer: pl.Trainer) -> int:
    """Steps of training so far, however many optimizers take part in one.

    Lightning's `global_step` counts each optimizer's; where a module optimizes by itself, a step is
    a batch.
    """
    module = trainer.lightning_module
    if module is None or module.automatic_optimization:
        return trainer.global_step
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress.total
    return progress.processed
