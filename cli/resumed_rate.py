"""What the learning rate will be when a run goes on, known before anything is trained.

A longer run stands earlier in its schedule, so that its rate jumps: the table of changes shows it.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from callbacks.exact_resume import KEY, CountsSamples, matching_position
from lightning_modules.run_length import remaining_steps
from lightning_modules.schedules import PROGRESS, Schedule


def resumed_rate(
    checkpoint: Mapping[str, Any], config: Mapping[str, Any], loader: Any
) -> tuple[float, float] | None:
    """The rate of the checkpoint's next step, and that with this configuration.

    Args:
        checkpoint: As it was read.
        config: Of the run that goes on.
        loader: Its training batches.

    Returns:
        None where the checkpoint was not taken between two steps, or its schedule is not ours.
    """
    place, states = checkpoint.get(KEY), checkpoint["lr_schedulers"]
    if place is None or len(states) != 1 or not set(PROGRESS) <= set(states[0]):
        return None
    try:
        batches = num_batches(len(loader), config)
    except TypeError:  # a fork's own loader, which does not know
        return None
    window = config["accumulate_grad_batches"]
    epochs = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["completed"]
    position, sampler = place["position"], getattr(loader, "batch_sampler", None)
    if position and isinstance(sampler, CountsSamples) and place.get("samples") is not None:
        sampler.set_epoch(epochs)
        position = matching_position(sampler, place["samples"], batches, window)
    limits = config["max_epochs"], config["max_steps"]
    per_epoch, of_epoch = math.ceil(batches / window), math.ceil(position / window)
    total = remaining_steps(limits, per_epoch)
    left = remaining_steps(limits, per_epoch, epochs, of_epoch, checkpoint["global_step"])
    if not math.isfinite(total):
        return None
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    schedule = Schedule(optimizer, int(total), **config["schedule"])
    schedule.load_state_dict(states[0])
    lr, before = config["optimizer"]["lr"], checkpoint["description"]["config"]["optimizer"]
    if lr != "auto" and config["optimizer"] != before:
        (group, *_) = checkpoint["optimizer_states"][0]["param_groups"]
        schedule.base_lrs = [float(lr) * group.get("lr_scale", 1.0)]
    schedule.base_lrs = schedule.base_lrs[:1]
    schedule.move_to(int(total - left))
    return float(states[0]["_last_lr"][0]), float(schedule.get_last_lr()[0])


def num_batches(length: int, config: Mapping[str, Any]) -> int:
    """Batches of an epoch that are trained on."""
    limit = config["overfit_batches"] or config["limit_train_batches"]
    if limit is None:
        return length
    return int(length * limit) if isinstance(limit, float) else min(length, limit)
