"""What the learning rate will be when a run goes on, known before anything is trained.

A longer run stands earlier in its schedule, so that its rate jumps: the table of changes shows it.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from callbacks.exact_resume import KEY, CountsSamples, matching_position
from lightning_modules.run_length import remaining_steps
from lightning_modules.schedules import Schedule


def resumed_rate(
    checkpoint: Mapping[str, Any], config: Mapping[str, Any], loader: Any
) -> tuple[float, float] | None:
    """The rate of the checkpoint's next step, and that with this configuration.

    Args:
        checkpoint: As it was read.
        config: Of the run that goes on.
        loader: Its training batches.

    Returns:
        None where the checkpoint was not taken between two steps, its schedule is not ours, or a
        length is not known.
    """
    place, states = checkpoint.get(KEY), checkpoint["lr_schedulers"]
    if place is None or len(states) != 1 or not Schedule.wrote(states[0]):
        return None
    window, limits = config["accumulate_grad_batches"], (config["max_epochs"], config["max_steps"])
    try:
        batches = num_batches(len(loader), config)
    except TypeError:  # a fork's own loader
        return None
    position, sampler = place["position"], getattr(loader, "batch_sampler", None)
    if position and isinstance(sampler, CountsSamples) and place.get("samples") is not None:
        sampler.set_epoch(checkpoint["epoch"])
        position = matching_position(sampler, place["samples"], batches, window)
    per_epoch, done = (
        math.ceil(batches / window),
        (checkpoint["epoch"], math.ceil(position / window)),
    )
    total = remaining_steps(limits, per_epoch)
    left = remaining_steps(limits, per_epoch, *done, checkpoint["global_step"])
    if not math.isfinite(total):
        return None
    first, *_ = checkpoint["optimizer_states"][0]["param_groups"]
    group = {"params": [torch.zeros(1)], "lr_scale": first.get("lr_scale", 1.0)}
    schedule = Schedule(torch.optim.SGD([group], lr=1.0), int(total), **config["schedule"])
    schedule.load_state_dict(states[0] | {"base_lrs": states[0]["base_lrs"][:1]})
    lr, before = config["optimizer"]["lr"], checkpoint["description"]["config"]["optimizer"]
    if lr != "auto" and config["optimizer"] != before:
        schedule.set_base_lr(float(lr))
    schedule.move_to(int(total - left))
    return float(states[0]["_last_lr"][0]), float(schedule.get_last_lr()[0])


def num_batches(length: int, config: Mapping[str, Any]) -> int:
    """Batches of an epoch that are trained on."""
    limit = config["overfit_batches"] or config["limit_train_batches"]
    if limit is None:
        return length
    return int(length * limit) if isinstance(limit, float) else min(length, limit)
