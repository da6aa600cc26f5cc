"""TorchScript (legacy): traced and frozen; scripted where the network branches on its input.

Deprecated upstream and absent on Python 3.14 and later. `optimize_for_inference` is not used: the
file it saves does not load again (seen with torch 2.14).
"""

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from exporters.candidate import ExportJob
from exporters.evaluation import Runner, tensor_runner
from exporters.operators import lacks_library
from exporters.process import one_line
from exporters.spec import ExportSpec

FILE = "model.pt"
PRECISION = "fp32"
RUNTIME = "torch"

# https://github.com/pytorch/pytorch/issues/158022: everything in torch.jit warns of its deprecation
DEPRECATED = r"`torch\.jit\.\w+` is (deprecated|not supported)"
BRANCH_LOST = "Converting a tensor to a Python"


def unavailable(description: Mapping[str, Any]) -> str | None:
    """Why this format cannot be made here, known without trying."""
    if sys.version_info >= (3, 14):
        return "TorchScript does not exist on Python 3.14 and later"
    return lacks_library(description)


def export(job: ExportJob, path: Path) -> dict[str, Any]:
    """Writes a frozen TorchScript file; says whether it was traced or scripted."""
    with warnings.catch_warnings():
        ignore_deprecation()
        script, how = to_script(job.module, job.example)
        script = torch.jit.freeze(script.eval())
        torch.jit.save(script, str(path))
    return {"notes": [f"{how}; legacy, PyTorch has deprecated this format"]}


def to_script(module: nn.Module, example: tuple[Tensor, ...]) -> tuple[Any, str]:
    """Traces; where the trace warns that it froze a decision, scripts instead."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        traced = torch.jit.trace(module, example, check_trace=False)
    frozen = [str(w.message) for w in caught if BRANCH_LOST in str(w.message)]
    if not frozen:
        return traced, "traced"
    try:
        return torch.jit.script(module), "scripted, since a trace may freeze a decision"
    except RuntimeError as error:
        line = str(error).strip().splitlines()[0]
        return traced, f"traced, and a branch may be frozen (scripting failed: {line})"


def fault(module: nn.Module, example: tuple[Tensor, ...]) -> str | None:
    """Why a module cannot be traced: found by trying, since what never runs is read as well."""
    try:
        with warnings.catch_warnings():
            ignore_deprecation()
            to_script(module, example)
    except Exception as error:  # of the network's own code, so of any type
        return f"{one_line(error)} (TorchScript evaluates every property of a module)"
    return None


def read_back(path: Path, spec: ExportSpec) -> dict[str, Any]:
    """Reads the inputs from the saved file.

    Raises:
        ValueError: They are not those of the spec.
    """
    with warnings.catch_warnings():
        ignore_deprecation()
        script = torch.jit.load(str(path), map_location="cpu")
    names = [value.debugName() for value in script.graph.inputs()][1:]
    if len(names) != len(spec.inputs):
        raise ValueError(f"takes {len(names)} inputs, expected {', '.join(spec.names)}")
    return {"inputs": spec.names}


def load(path: Path, names: list[str], threads: int | None) -> Runner:
    """Arrays by name in, logits out."""
    if threads is not None:
        torch.set_num_threads(threads)
    with warnings.catch_warnings():
        ignore_deprecation()
        return tensor_runner(torch.jit.load(str(path), map_location="cpu"), names)


def ignore_deprecation() -> None:
    """Filters the one known warning; the format is labelled legacy instead."""
    warnings.filterwarnings("ignore", DEPRECATED, FutureWarning, r"torch\.jit\..*")
    warnings.filterwarnings("ignore", DEPRECATED, DeprecationWarning, r"torch\.jit\..*")
