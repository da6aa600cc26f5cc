"""Which code, libraries and machine a run and its checkpoints come from."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli.parsing import Configuration, recorded
from exporters.machine import library_versions as installed
from lightning_modules.checkpoint import read_checkpoint

PROJECT = Path(__file__).resolve().parents[1]
PATHS = ("root", "cache_dir", "vocab", "vectors", "tokenizer")  # settings of data
TOKENIZERS = ("auto", "basic_english", "char", "bpe")


def provenance(configuration: Configuration) -> dict[str, Any]:
    """What a checkpoint says of where it comes from."""
    return {
        "versions": library_versions(),
        "git_commit": git_commit(),
        "config": findable(recorded(configuration)),
    }


def library_versions() -> dict[str, str]:
    """Version by package name."""
    return installed(("torch", "pytorch-lightning", "torchmetrics", "numpy"))


def git_commit() -> str | None:
    """The commit this code is at, with "-dirty" where files differ from it."""
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=10, encoding="utf-8"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def tested_line(
    path: Path | None, monitor: str | None, is_exported: object, is_tested: bool
) -> str:
    """`tested and exported: best.ckpt, epoch 3, step 120, val/accuracy 0.9640`."""
    done = ["tested"] * is_tested + ["exported"] * bool(is_exported)
    what = f"{' and '.join(done) or 'neither tested nor exported'}: "
    if path is None:
        return what + "the weights as they are, there is no checkpoint"
    description = read_checkpoint(path)["description"]
    score = description["scores"].get(monitor)
    place = f"epoch {description['epoch'] + 1}, step {description['global_step']}"
    found = f", {monitor} {score:.4f}" if score is not None else f", without {monitor}"
    return f"{what}{path.name}, {place}{found if monitor else ''}"


def start_line(configuration: dict[str, Any], model: Any, trainer: Any) -> str:
    """What is trained on what, in one line."""
    parameters = sum(p.numel() for p in model.parameters())
    return (
        f"{configuration['model']['name']} ({parameters:,} parameters) on "
        f"{configuration['data']['name']}, {trainer.world_size} x "
        f"{trainer.strategy.root_device.type}, precision {trainer.precision}, "
        f"seed {configuration['seed']}"
    )


def findable(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose data is found from any folder, as a checkpoint keeps it."""
    data = {
        name: str(Path(value).absolute()) if name in PATHS and is_path(value) else value
        for name, value in config["data"].items()
    }
    return {**config, "data": data}


def is_path(value: Any) -> bool:
    """Whether it names something that is there; `bpe` names a tokenizer, whatever lies here."""
    return isinstance(value, str) and value not in TOKENIZERS and Path(value).exists()
