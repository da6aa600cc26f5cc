"""torch.export: the graph that newer PyTorch deployment tools read (.pt2).

The example must have a batch of at least 2, since a 1 would be specialised.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exporters.candidate import ExportJob
from exporters.evaluation import Runner, tensor_runner
from exporters.operators import lacks_library
from exporters.program import graph_unavailable, ignore_loop_warnings, to_program
from exporters.spec import ExportSpec

FILE = "model.pt2"
PRECISION = "fp32"
RUNTIME = "torch"


def unavailable(description: Mapping[str, Any]) -> str | None:
    """Why this format cannot be made, known without trying."""
    return graph_unavailable(description) or lacks_library(description)


def export(job: ExportJob, path: Path) -> dict[str, Any]:
    """Writes an ExportedProgram with dynamic axes."""
    program = to_program(job.module, job.example, job.spec.dynamic_shapes())
    program.example_inputs = None  # real samples stay out of the file
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # so do the paths of this machine
    torch.export.save(program, path)
    return {}


def read_back(path: Path, spec: ExportSpec) -> dict[str, Any]:
    """Reads names and dynamic axes from the saved file.

    Raises:
        ValueError: They are not those of the spec.
    """
    program = torch.export.load(path)
    names = list(program.graph_signature.user_inputs)
    if names != spec.names:
        raise ValueError(
            f"takes ({', '.join(map(str, names))}), expected ({', '.join(spec.names)})"
        )
    shapes = {
        node.name: node.meta["val"].shape for node in program.graph.nodes if node.name in names
    }
    for item in spec.inputs:
        for i, axis in enumerate(item.shape):
            if isinstance(axis, str) and isinstance(shapes[item.name][i], int):
                raise ValueError(f"axis {axis!r} of {item.name} is fixed at {shapes[item.name][i]}")
    return {"inputs": [item.describe() for item in spec.inputs]}


def load(path: Path, names: list[str], threads: int | None) -> Runner:
    """Arrays by name in, logits out."""
    if threads is not None:
        torch.set_num_threads(threads)
    run = tensor_runner(torch.export.load(path).module(), names)

    def run_quietly(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        with warnings.catch_warnings():
            ignore_loop_warnings()
            return run(inputs)

    return run_quietly
