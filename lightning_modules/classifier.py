"""The training logic around a deployable module: loss, metrics, optimizer and schedule.

One step serves training, validation and test. Nothing is logged in a step: a row a sample is kept
on the device and read once an epoch, which is both exact and faster than per-step logging.

N batch, K outputs.
"""

import math
from collections.abc import Mapping, Sized
from typing import Any, Literal

import pytorch_lightning as pl
from torch import Tensor, nn

from lightning_modules.activation_checkpointing import checkpoint_activations
from lightning_modules.batch import Batch, tensors_of
from lightning_modules.losses import OUTCOMES
from lightning_modules.optimizers import FALLBACK_LR, build_optimizer, can_fuse
from lightning_modules.outcome_buffer import OutcomeBuffer
from lightning_modules.run_length import loss_scale, steps_left
from lightning_modules.schedules import Schedule
from tasks.base import Task, build_task
from tasks.outcomes import Report, better_direction, check_name, monitored_names, report

PLACE = ("epoch", "global_step")  # of a checkpoint's weights


class Classifier(pl.LightningModule):
    """Trains a deployable module.

    Args:
        model: Raw inputs -> logits [N,K] (see `deployed`).
        criterion: Logits [N,K] and targets -> the loss of each sample [N].
        description: What a checkpoint must say so that a fresh process can rebuild the model;
            plain values only.
        optimizer: Arguments of `build_optimizer`.
        schedule: Arguments of `Schedule`.
        activation_checkpointing: Recomputes each block's activations in the backward pass.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: nn.Module,
        description: Mapping[str, Any],
        optimizer: Mapping[str, Any],
        schedule: Mapping[str, Any],
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.description = dict(description)
        self.task: Task = build_task(description)
        self.optimizer_arguments = dict(optimizer)
        self.schedule_arguments = dict(schedule)
        self.criterion = criterion
        kept = self.task.row, self.task.num_outputs
        self.train_outcomes = OutcomeBuffer(*kept)
        self.val_outcomes = OutcomeBuffer(*kept, keeps_scores=True)
        self.test_outcomes = OutcomeBuffer(*kept, keeps_scores=True)
        self.reports: dict[str, Report] = {}
        self.monitored: list[str] = []  # names that a callback or the schedule goes by
        self.validated: dict[str, Any] = {"scores": {}}  # the last time: scores, step
        self.tested: dict[str, int | None] = {}  # place of the weights that were loaded for a test
        self.resumed_outcomes: Tensor | None = None
        self.resumed_groups: list[int] | None = None  # sizes of the optimizer's groups
        self.optimizer_changed = False  # by a resumed run that asked for that
        name = self.optimizer_arguments.get("name", "adamw")
        lr = self.optimizer_arguments.get("lr", "auto")
        self.lr_is_auto = lr == "auto"
        self.base_lr = FALLBACK_LR.get(name, 1e-3) if self.lr_is_auto else float(lr)
        if activation_checkpointing:
            checkpoint_activations(model)

    # ---- steps -------------------------------------------------------------------------

    @property
    def deployed(self) -> nn.Module:
        """What is exported: raw inputs -> logits [N,K]."""
        return self.model

    def compute_loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The one place where network, loss and outcomes meet, for all that needs a loss.

        Changes nothing; to be overridden for other or further losses.

        Returns:
            The loss of each sample, float [N] with a gradient, which is averaged and minimised; and
            what is kept of each, without one: a row's columns [N], of which "loss" is what is
            logged, and "scores", float32 [N,K].
        """
        inputs, targets = batch
        logits = self.model(*tensors_of(inputs))
        losses = self.criterion(logits, targets)
        outcomes = OUTCOMES[self.task.name](logits.detach(), targets, losses.detach())
        return losses, outcomes

    def observe(self, batch: Batch, kept: OutcomeBuffer) -> tuple[Tensor, dict[str, Tensor]]:
        """`compute_loss`, whose outcomes are kept for the figures of the epoch."""
        losses, outcomes = self.compute_loss(batch)
        kept.add(outcomes)
        return losses, outcomes

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor | None:
        losses, _ = self.observe(batch, self.train_outcomes)
        return losses.sum() * loss_scale(self.trainer, batch_idx, len(losses))

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.observe(batch, self.val_outcomes)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns the task's outcomes by name, [N] each, for callbacks that show predictions."""
        return self.observe(batch, self.test_outcomes)[1]

    def losses_are_finite(self) -> bool:
        """Whether all of this epoch are, on this rank; reads one value from the device."""
        return self.train_outcomes.losses_are_finite()

    # ---- epoch ends --------------------------------------------------------------------

    @property
    def metric_names(self) -> list[str]:
        """Every name that can be monitored, known before training starts."""
        return monitored_names(self.task)

    def check_monitor(self, group: str, monitor: str) -> Literal["min", "max"]:
        """Finds a misspelt metric before training instead of after the first epoch.

        Returns:
            Whether smaller or larger is better.

        Raises:
            ValueError: No step logs that name; the nearest one and all names are given.
        """
        check_name(group, monitor, self.metric_names)
        self.monitored.append(monitor)
        return better_direction(self.task, monitor)

    def on_train_start(self) -> None:
        self._expect("val", self.val_outcomes, self.trainer.val_dataloaders)
        if self.resumed_outcomes is not None and self.trainer.is_global_zero:  # those of all ranks
            self.train_outcomes.restore(self.resumed_outcomes)
        self.resumed_outcomes = None
        if self.optimizer_changed:
            self._apply_configured_optimizer()
        for schedule in self._schedules():  # where batches or limits are others than before
            schedule.move_to(schedule.total_steps - steps_left(self.trainer))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        # at the last batch, so that every callback finds the values at the epoch's end
        is_out_of_steps = 0 <= self.trainer.max_steps <= self.trainer.global_step
        if self.trainer.is_last_batch or is_out_of_steps:
            self.log_training()

    def on_train_epoch_end(self) -> None:
        if not self.trainer.is_last_batch:  # the epoch was cut short
            self.log_training()
        self.train_outcomes.reset()

    def log_training(self) -> None:
        """Logs the figures of the epoch so far, and the rate."""
        self._log_report("train", self.train_outcomes)
        self._log_epoch({"lr": self.trainer.optimizers[0].param_groups[0]["lr"]})

    def on_validation_start(self) -> None:
        self._expect("val", self.val_outcomes, self.trainer.val_dataloaders)

    def on_validation_epoch_end(self) -> None:
        if self.trainer.sanity_checking:
            self.val_outcomes.reset()
            return
        scalars = self._log_report("val", self.val_outcomes)
        self.val_outcomes.reset()
        self.validated = {
            "scores": {f"val/{name}": value for name, value in scalars.items()},
            "global_step": self.global_step,
        }
        if self.trainer.state.fn == "fit":
            for schedule in self._schedules():
                schedule.observe(scalars[schedule.monitor.removeprefix("val/")])

    def on_test_start(self) -> None:
        self._expect("test", self.test_outcomes, self.trainer.test_dataloaders)

    def on_test_epoch_end(self) -> None:
        self._log_report("test", self.test_outcomes)
        self.test_outcomes.reset()
        epoch, step = (self.tested.get(key) for key in PLACE)
        if epoch is not None and step is not None:  # else Lightning logs at the end of the training
            self._log_epoch({"epoch": epoch, "step": step})

    def _expect(self, split: str, outcomes: OutcomeBuffer, loader: object) -> None:
        """Says, before any of them is made, where the scores of an evaluation are not kept.

        Raises:
            ValueError: A metric that needs them is monitored.
        """
        if loader is None:
            return
        dataset = getattr(loader, "dataset", None)
        reason = outcomes.expect(len(dataset) if isinstance(dataset, Sized) else None)
        if reason is None:
            return
        for name in self.monitored:
            if name.rpartition("/")[2] in self.task.needs_scores:
                raise ValueError(f"{name} cannot be monitored with {reason}; choose another metric")
        names = ", ".join(f"{split}/{name}" for name in sorted(self.task.needs_scores))
        self.print(f"without {names}: {reason}")

    def _log_report(self, split: str, outcomes: OutcomeBuffer) -> dict[str, float]:
        found = self.reports[split] = report(self.task, *outcomes.collect(self.device))
        self._log_epoch({f"{split}/{name}": value for name, value in found.scalars.items()})
        return found.scalars

    def _log_epoch(self, values: Mapping[str, float]) -> None:
        # one value an epoch, the same on every rank: nothing to average
        self.log_dict(dict(values), on_step=False, on_epoch=True, batch_size=1)

    # ---- optimization ------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        fused = can_fuse(self.model, self.trainer.precision, bool(self.trainer.gradient_clip_val))
        optimizer = build_optimizer(self.model, fused, **self.optimizer_arguments)
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        if self.resumed_groups not in (None, sizes):
            raise ValueError(
                f"the checkpoint's optimizer has groups of {self.resumed_groups} parameters, but "
                f"this run's has {sizes}: --optimizer.backbone_lr_scale and what the network's "
                "parameter_groups() gives cannot be changed so on resume"
            )
        self.configured_groups = [dict(group) for group in optimizer.param_groups]
        total_steps = self.trainer.estimated_stepping_batches
        if not math.isfinite(total_steps):
            raise ValueError("the schedule needs an end: give --max_epochs or --max_steps")
        schedule = Schedule(optimizer, int(total_steps), **self.schedule_arguments)
        if schedule.is_watching:
            schedule.mode = self.check_monitor("schedule", schedule.monitor)
        schedule.set_base_lr(self.base_lr)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def _apply_configured_optimizer(self) -> None:
        """Settings of this run over those that came with the checkpoint; not the moments."""
        fixed = ("params", "lr", "initial_lr")
        peaks = [(schedule, schedule.peak_lr) for schedule in self._schedules()]
        for optimizer in self.trainer.optimizers:
            for group, configured in zip(
                optimizer.param_groups, self.configured_groups, strict=True
            ):
                group.update({k: v for k, v in configured.items() if k not in fixed})
        for schedule, peak in peaks:  # each group's share of it may be another
            schedule.set_base_lr(peak)
        if not self.lr_is_auto:
            self.set_base_lr(float(self.optimizer_arguments["lr"]))

    def set_base_lr(self, lr: float) -> None:
        """Changes the peak rate; optimizer and schedule follow if they exist."""
        self.base_lr = lr
        for schedule in self._schedules():
            schedule.set_base_lr(lr)

    def _schedules(self) -> list[Schedule]:
        configs = self.trainer.lr_scheduler_configs
        return [c.scheduler for c in configs if isinstance(c.scheduler, Schedule)]

    # ---- checkpoints -------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        epochs: Any = self.trainer.fit_loop.epoch_progress.current
        here = {"epoch": max(0, epochs.started - 1), "global_step": self.global_step}
        # scores of these very weights, or none
        is_validated = self.validated.get("global_step") == self.global_step
        scores = self.validated["scores"] if is_validated else {}
        checkpoint["description"] = self.description | here | {"scores": scores}
        if self.trainer.state.fn == "fit":
            checkpoint["train_outcomes"] = self.train_outcomes.state(self.device)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        description = checkpoint["description"]
        self.tested = {key: description.get(key) for key in PLACE}
        if self.trainer.state.fn == "fit":
            if description.get("scores"):
                self.validated = {key: description.get(key) for key in ("scores", "global_step")}
            self.resumed_outcomes = checkpoint.get("train_outcomes")
            if "train_counts" in checkpoint:
                self.print(
                    "train/ figures of this epoch begin here: the checkpoint is an older one"
                )
            for state in checkpoint["optimizer_states"][:1]:
                self.resumed_groups = [len(group["params"]) for group in state["param_groups"]]
            before = description["config"].get("optimizer")
            self.optimizer_changed = before != self.description["config"].get("optimizer")
