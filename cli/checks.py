"""Checks of the machine against what was asked for, before anything is loaded."""

import os
import socket
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.accelerators import AcceleratorRegistry
from pytorch_lightning.strategies import StrategyRegistry

from cli.problems import did_you_mean

GPU_NAMES = ("gpu", "cuda")
SHARDING = ("fsdp", "deepspeed", "model_parallel")  # what their names begin with


def check_machine(configuration: dict[str, Any]) -> list[str]:
    """All problems with accelerator, devices and strategy, one line each."""
    return [
        *check_strategy(configuration["strategy"]),
        *check_accelerator(configuration["accelerator"], configuration["devices"]),
        *check_nodes(configuration["num_nodes"]),
        *check_master_port(),
    ]


def check_strategy(strategy: str) -> list[str]:
    available = StrategyRegistry.available_strategies()
    known = ["auto"]
    known += [n for n in available if "spawn" not in n and not n.startswith(SHARDING)]
    if strategy in known:
        return []
    if strategy.startswith(SHARDING):
        return [
            f"--strategy {strategy} shards the weights over the devices, but checkpoints, "
            "averaging and the checks of gradients need them whole: use ddp, and for less memory "
            "--precision bf16-mixed or --model.checkpoint_activations true"
        ]
    if strategy in available:
        return [
            f"--strategy {strategy} is left out on purpose: spawned processes cannot take over a "
            "run's open files and its lock; --strategy ddp does the same work"
        ]
    near = did_you_mean(strategy, known)
    return [f"--strategy {strategy} is unknown{near} (available: {', '.join(known)})"]


def check_accelerator(accelerator: str, devices: Any) -> list[str]:
    known = ["auto", "gpu", *AcceleratorRegistry.available_accelerators()]
    if accelerator not in known:
        near = did_you_mean(accelerator, known)
        return [f"--accelerator {accelerator} is unknown{near} (available: {', '.join(known)})"]
    if problem := check_devices(accelerator, devices):
        return [problem]
    if accelerator in ("auto", "cpu"):
        return []
    reason = why_no_gpu() if accelerator in GPU_NAMES else why_not(accelerator)
    if reason:
        return [f"--accelerator {accelerator}: {reason}; --accelerator auto takes what is there"]
    if accelerator not in GPU_NAMES:
        return []
    found = torch.cuda.device_count()
    wanted = max(devices) + 1 if isinstance(devices, list) and devices else devices
    if isinstance(wanted, int) and wanted > found:
        return [f"--devices {devices}: this machine has {found} usable GPU(s)"]
    return []


def check_devices(accelerator: str, devices: Any) -> str | None:
    """What is wrong with the form of --devices for a kind of machine."""
    if isinstance(devices, int) and devices < -1 or devices == 0:
        return f"--devices must be -1 (all), at least 1, a list or auto; got {devices}"
    if isinstance(devices, int) or devices == "auto":
        return None
    text = devices if isinstance(devices, str) else ",".join(map(str, devices))
    numbers = [part for part in text.split(",") if part]
    is_list = bool(numbers) and all(map(str.isdecimal, numbers))
    if not is_list or len(set(numbers)) < len(numbers):
        return (
            f"--devices must be how many (2), which ones ([0,2], each once), -1 (all) or auto; "
            f"got {devices}"
        )
    if runs_on_cpu(accelerator):
        return (
            f"--devices {devices} names GPUs, but this would run on the CPU; there say how many "
            f"processes: --devices {len(numbers)}"
        )
    return None


def runs_on_cpu(accelerator: str) -> bool:
    """Whether that accelerator means the CPU on this machine."""
    has_other = torch.cuda.is_available() or torch.backends.mps.is_available()
    return accelerator == "cpu" or (accelerator == "auto" and not has_other)


def why_not(accelerator: str) -> str | None:
    """Why an accelerator other than NVIDIA's cannot be used here."""
    if AcceleratorRegistry[accelerator]["accelerator"].is_available():
        return None
    if accelerator == "tpu":
        return "TPUs need torch_xla, which is not installed and not part of the environment here"
    if accelerator == "mps":
        return "this machine has no Apple GPU that torch can use"
    return "this machine has none"


def check_nodes(num_nodes: int) -> list[str]:
    """Nodes that do not know each other would wait for half an hour."""
    launched = ("MASTER_ADDR", "SLURM_PROCID", "LSB_JOBID", "KUBERNETES_PORT", "JSM_NAMESPACE_RANK")
    if num_nodes > 1 and not any(name in os.environ for name in launched):
        return [
            f"--num_nodes {num_nodes}: nothing says where the nodes are; start this by torchrun or "
            "srun on each, or set MASTER_ADDR, MASTER_PORT and NODE_RANK there"
        ]
    return []


def why_no_gpu(device_files: Path = Path("/dev")) -> str | None:
    """Tells a machine without a GPU from one whose driver or GPU this torch cannot use."""
    if not torch.backends.cuda.is_built():
        return f"this torch build ({torch.__version__}) has no CUDA support"
    if not torch.cuda.is_available():
        if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
            return "CUDA_VISIBLE_DEVICES hides every GPU"
        if not any(device_files.glob("nvidia[0-9]*")):
            return "there is no NVIDIA GPU on this machine"
        return (
            "there is an NVIDIA GPU, but its driver is too old or not working for this torch "
            f"build (made for CUDA {torch.version.cuda}); update the driver or install a torch "
            "build for an older CUDA"
        )
    major, minor = torch.cuda.get_device_capability(0)
    built_for = [
        int(name[3:].rstrip("af")) for name in torch.cuda.get_arch_list() if name[:3] == "sm_"
    ]
    if built_for and 10 * major + minor < min(built_for):
        return (
            f"the GPU (compute capability {major}.{minor}) is too old for this torch build "
            f"(from {min(built_for) // 10}.{min(built_for) % 10})"
        )
    return None


def check_master_port() -> list[str]:
    """A fixed port that another program holds would end in a long time-out."""
    port = os.environ.get("MASTER_PORT", "")
    is_launched = "LOCAL_RANK" in os.environ or "RANK" in os.environ
    if not port.isdigit() or is_launched:
        return []
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", int(port)))
        except OSError:
            return [
                f"MASTER_PORT {port} is in use by another program; choose another port, or unset "
                "MASTER_PORT to have a free one chosen"
            ]
    return []


def set_matmul_precision(configuration: dict[str, Any]) -> str | None:
    """Applies --float32_matmul_precision; says where its default leaves tensor cores unused."""
    wanted, precision = configuration["float32_matmul_precision"], configuration["precision"]
    torch.set_float32_matmul_precision(wanted)
    is_gpu = configuration["accelerator"] in ("auto", *GPU_NAMES) and torch.cuda.is_available()
    if wanted != "highest" or precision not in (None, "32-true", "32") or not is_gpu:
        return None
    if torch.cuda.get_device_capability()[0] < 8:  # from Ampere on they multiply float32
        return None
    return (
        "this GPU's tensor cores are not used in float32: --float32_matmul_precision high (TF32) "
        "or --precision bf16-mixed is faster, and less exact"
    )


def adapt_to_cpu(configuration: dict[str, Any]) -> list[str]:
    """Replaces what needs a GPU where training runs without one; says each in a line."""
    accelerator = configuration["accelerator"]
    if accelerator not in ("auto", "cpu") or (accelerator == "auto" and torch.cuda.is_available()):
        return []
    notes = []
    if configuration["sync_batchnorm"]:
        configuration["sync_batchnorm"] = False
        notes.append("SyncBatchNorm needs GPUs: each process keeps its own BatchNorm statistics")
    if configuration["precision"] in ("16-mixed", "16", "16-true"):
        other = "bf16-true" if configuration["precision"] == "16-true" else "bf16-mixed"
        configuration["precision"] = other
        notes.append(f"float16 needs a GPU: precision {other} is used instead")
    return notes
