"""What a configuration becomes on this machine: everything that is changed is said in a line."""

from typing import Any

import torch

from cli.checks import adapt_to_cpu, runs_on_cpu
from lightning_modules.network_signature import STARTS

OLDER_NAMES = {"16": "16-mixed", "bf16": "bf16-mixed", "32": "32-true", "64": "64-true"}
UNUSED = "ddp_find_unused_parameters_true"


def adapt(configuration: dict[str, Any]) -> list[str]:
    """Changes the configuration in place; returns what to say.

    What was left to the machine is changed, and what it cannot do but something else can stand
    for; where a choice was made that cannot be kept, the checks refuse instead.
    """
    return [
        *adapt_precision(configuration),
        *adapt_devices(configuration),
        *adapt_to_cpu(configuration),
        *adapt_batch_size(configuration),
        *adapt_strategy(configuration),
        *without_effect(configuration),
    ]


def without_effect(configuration: dict[str, Any]) -> list[str]:
    """What another setting takes the place of; nothing is changed."""
    notes = []
    limits = [f"limit_{part}_batches" for part in ("train", "val")]
    given = [f"--{n} {configuration[n]}" for n in limits if configuration[n] is not None]
    if (share := configuration["overfit_batches"]) and given:
        notes.append(f"--overfit_batches {share} takes the place of {' and '.join(given)}")
    if configuration["fast_dev_run"] and configuration["logger"] != "csv":
        notes.append(f"--logger {configuration['logger']} is not used: --fast_dev_run logs nothing")
    return notes


def adapt_precision(configuration: dict[str, Any]) -> list[str]:
    """Lightning's older names, of which it would warn."""
    short = configuration["precision"]
    if short not in OLDER_NAMES:
        return []
    configuration["precision"] = OLDER_NAMES[short]
    return [f"precision {short} is {OLDER_NAMES[short]}"]


def adapt_devices(configuration: dict[str, Any]) -> list[str]:
    """`0,2` is a list, and all devices of a machine without GPUs are one process."""
    devices = configuration["devices"]
    if devices == -1 and runs_on_cpu(configuration["accelerator"]):
        configuration["devices"] = 1
        return ["--devices -1 means every GPU: there is none, so this is one process on the CPU"]
    if isinstance(devices, str) and devices != "auto":
        configuration["devices"] = [int(part) for part in devices.split(",") if part]
    return []


def num_processes(configuration: dict[str, Any]) -> int:
    """Over all devices and nodes, as far as this machine can tell."""
    devices = configuration["devices"]
    if isinstance(devices, list):
        count = len(devices)
    elif isinstance(devices, int) and devices > 0:
        count = devices
    else:
        is_cuda = configuration["accelerator"] in ("auto", "gpu", "cuda")
        count = max(1, torch.cuda.device_count()) if is_cuda else 1
    return count * configuration["num_nodes"]


def adapt_batch_size(configuration: dict[str, Any]) -> list[str]:
    """Makes the batch one that the devices found can share; a number of devices is kept to."""
    size, count = configuration["data"].get("batch_size"), num_processes(configuration)
    if configuration["devices"] not in ("auto", -1) or not size or size % count == 0:
        return []
    fitting = max(size // count, 1) * count
    configuration["data"]["batch_size"] = fitting
    return [f"batch size {fitting} instead of {size}: {count} processes share each batch equally"]


def adapt_strategy(configuration: dict[str, Any]) -> list[str]:
    """Frozen layers get no gradient, which plain DDP does not bear."""
    if not freezes(configuration) or configuration["strategy"] != "auto":
        return []
    configuration["strategy"] = UNUSED
    return [
        f"strategy {UNUSED}: --unfreeze keeps layers without a gradient at first (torch says so "
        "when they get one)"
    ]


def freezes(configuration: dict[str, Any]) -> bool:
    """Whether several processes train a network with frozen layers."""
    unfreeze = configuration.get("unfreeze") or {}  # the callback may have been deleted
    return bool(unfreeze.get("enabled")) and num_processes(configuration) > 1


def check_strategy_of_frozen(configuration: dict[str, Any]) -> None:
    """Refuses a strategy that was asked for and would fail in the first epoch.

    Raises:
        ValueError: With the strategy that works.
    """
    strategy = configuration["strategy"]
    if freezes(configuration) and strategy.startswith("ddp") and "unused" not in strategy:
        raise ValueError(
            f"--strategy {strategy} does not bear the frozen layers of --unfreeze, which get no "
            f"gradient; leave it out, or give --strategy {UNUSED}"
        )


def needless(configuration: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Pretrained weights of a network, where those of a checkpoint take their place."""
    starts_from = (configuration[name] for name in ("resume", "test_only", "replay"))
    is_loaded = any(starts_from)
    return {name: value for name, value in STARTS.items() if is_loaded and name in arguments}
