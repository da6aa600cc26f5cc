"""Learning-rate schedules: a factor that depends on the step, and one that depends on the loss.

Every schedule is base rate x factor(step) x plateau scale, so changing the base rate (the rate
finder does) needs no rebuilding, and one small state resumes any of them.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

ScheduleName = Literal["constant", "step", "cosine", "onecycle", "plateau", "warmup_cosine_plateau"]
WATCHING = ("plateau", "warmup_cosine_plateau")
PROGRESS = (
    *("last_epoch", "_step_count", "base_lrs", "_last_lr"),
    *("plateau_scale", "best_loss", "num_bad"),
)


class Schedule(LRScheduler):
    """Steps once an optimizer step; `observe` takes the monitored metric of each validation.

    Args:
        optimizer: Its groups' rates are the base rates (the peak of every schedule).
        total_steps: Optimizer steps of the whole training.
        name: constant, step, cosine, onecycle (Smith 2018), plateau, or warmup_cosine_plateau
            (linear warm-up, cosine, then a plateau rule on the validation loss).
        warmup: Share of all steps in which the rate rises linearly from near 0 (onecycle: cosine).
        final_factor: What cosine and onecycle end at, as a factor of the base rate.
        step_share: For step: share of all steps between two reductions.
        plateau_start: For warmup_cosine_plateau: share of all steps after which the plateau rule
            takes over from the cosine.
        reduce_factor: Factor of one reduction (step, plateau).
        patience: Validations without improvement before a plateau reduction.
        min_delta: Smallest relative improvement of the monitored metric that counts.
        min_factor: The plateau rule never goes below this factor of the base rate.
        monitor: Metric of the validation that the plateau rule watches.

    Raises:
        ValueError: What is monitored is no metric of the validation.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_steps: int,
        name: ScheduleName = "cosine",
        warmup: Annotated[float, "0 <= x < 1"] = 0.05,
        final_factor: Annotated[float, "0 <= x <= 1"] = 0.01,
        step_share: Annotated[float, "0 < x <= 1"] = 0.34,
        plateau_start: Annotated[float, "0 <= x <= 1"] = 0.7,
        reduce_factor: Annotated[float, "0 < x < 1"] = 0.3,
        patience: Annotated[int, ">= 0"] = 2,
        min_delta: Annotated[float, "0 <= x < 1"] = 1e-3,
        min_factor: Annotated[float, "0 <= x <= 1"] = 1e-3,
        monitor: str = "val/loss",
    ) -> None:
        if not monitor.startswith("val/"):
            wanted = "a metric of the validation, val/..."
            raise ValueError(f"--schedule.monitor must be {wanted}, got {monitor}")
        self.name = name
        self.total_steps = total_steps
        self.warmup_steps = round(warmup * total_steps)
        self.final_factor = final_factor
        self.step_steps = max(1, round(step_share * total_steps))
        self.plateau_step = 0 if name == "plateau" else round(plateau_start * total_steps)
        self.reduce_factor = reduce_factor
        self.patience = patience
        self.min_delta = min_delta
        self.min_factor = min_factor
        self.monitor = monitor
        self.mode: Literal["min", "max"] = "min"  # of the monitored metric
        self.plateau_scale = 1.0
        self.best_loss = math.inf  # or whatever else is monitored; infinite: none yet
        self.num_bad = 0
        super().__init__(optimizer)

    def get_lr(self) -> list[float | Tensor]:
        factor = FACTORS[self.name](self, self.last_epoch) * self.plateau_scale
        return [base_lr * factor for base_lr in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """Where training stands; what the configuration says is not part of it."""
        return {name: getattr(self, name) for name in (*PROGRESS, "monitor")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there with this schedule's settings; `move_to` fits it to this length."""
        for name in PROGRESS:
            setattr(self, name, state_dict[name])
        if state_dict.get("monitor", "val/loss") != self.monitor:  # the best was of another metric
            self.best_loss, self.num_bad = math.inf, 0

    @staticmethod
    def wrote(state_dict: dict[str, Any]) -> bool:
        """Whether a state is one of this class, and not of a schedule of the user's own."""
        return set(PROGRESS) <= set(state_dict)

    @property
    def is_watching(self) -> bool:
        """Whether a metric has a say in the rate."""
        return self.name in WATCHING

    @property
    def still_falls(self) -> bool:
        """Whether the rate may yet be lowered."""
        if self.is_watching:
            return self.last_epoch < self.plateau_step or self.plateau_scale > self.min_factor
        if self.name == "step":  # whether a reduction is still to come
            return self.last_epoch // self.step_steps < (self.total_steps - 1) // self.step_steps
        return self.name != "constant" and self.last_epoch < self.total_steps

    def set_base_lr(self, lr: float) -> None:
        """Changes the peak rate, times each group's `lr_scale`, and applies it to this step."""
        groups = self.optimizer.param_groups
        self.base_lrs: list[float | Tensor] = [lr * group.get("lr_scale", 1.0) for group in groups]
        for group, base_lr in zip(groups, self.base_lrs, strict=True):
            group["initial_lr"] = base_lr
        self._apply()

    @property
    def peak_lr(self) -> float:
        """The peak rate of a group whose `lr_scale` is 1."""
        return float(self.base_lrs[0]) / self.optimizer.param_groups[0].get("lr_scale", 1.0)

    def move_to(self, step: int) -> None:
        """Goes on as after that many steps of `total_steps`."""
        self.last_epoch = step
        self._apply()

    def observe(self, value: float) -> bool:
        """Takes the metric of a validation; returns whether the plateau rule reduced the rate.

        One that is not finite says nothing.
        """
        is_due = self.is_watching and self.last_epoch >= self.plateau_step
        if not is_due or not math.isfinite(value):
            return False
        if self._is_better(value):
            self.best_loss, self.num_bad = value, 0
            return False
        self.num_bad += 1
        if self.num_bad <= self.patience:
            return False
        self.num_bad = 0
        self.plateau_scale = max(self.plateau_scale * self.reduce_factor, self.min_factor)
        self._apply()
        return True

    def _is_better(self, value: float) -> bool:
        if math.isinf(self.best_loss):
            return True
        if self.mode == "min":
            return value < self.best_loss * (1 - self.min_delta)
        return value > self.best_loss * (1 + self.min_delta)

    def _apply(self) -> None:
        rates = self.get_lr()
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = lr
        self._last_lr = rates


def _warmup(schedule: Schedule, step: int) -> float:
    """Linear: the first step already has a rate above zero."""
    return min(1.0, (step + 1) / (schedule.warmup_steps + 1))


def _cosine(start: float, end: float, progress: float) -> float:
    """Half a cosine from start to end while progress goes from 0 to 1."""
    progress = min(1.0, max(0.0, progress))
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress))


def _progress(step: int, first: int, last: int) -> float:
    return (step - first) / max(1, last - first)


def _step_factor(schedule: Schedule, step: int) -> float:
    return _warmup(schedule, step) * schedule.reduce_factor ** (step // schedule.step_steps)


def _cosine_factor(schedule: Schedule, step: int) -> float:
    if step < schedule.warmup_steps:
        return _warmup(schedule, step)
    progress = _progress(step, schedule.warmup_steps, schedule.total_steps)
    return _cosine(1.0, schedule.final_factor, progress)


def _onecycle_factor(schedule: Schedule, step: int) -> float:
    peak = max(schedule.warmup_steps, round(0.3 * schedule.total_steps))
    if step < peak:
        return _cosine(0.04, 1.0, step / peak)
    return _cosine(1.0, schedule.final_factor, _progress(step, peak, schedule.total_steps))


def _three_phase_factor(schedule: Schedule, step: int) -> float:
    if step < schedule.warmup_steps:
        return _warmup(schedule, step)
    return _cosine(1.0, 0.1, _progress(step, schedule.warmup_steps, schedule.plateau_step))


FACTORS: dict[str, Callable[[Schedule, int], float]] = {
    "constant": _warmup,
    "step": _step_factor,
    "cosine": _cosine_factor,
    "onecycle": _onecycle_factor,
    "plateau": _warmup,
    "warmup_cosine_plateau": _three_phase_factor,
}
