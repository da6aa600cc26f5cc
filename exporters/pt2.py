"""torch.export: the graph that newer PyTorch deployment tools read (.pt2).

The example must have a batch of at least 2, since a 1 would be specialised.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from exporters.candidate import ExportJob
from exporters.evaluation import Runner, tensor_runner
from exporters.spec import ExportSpec

FILE = "model.pt2"
PRECISION = "fp32"
RUNTIME = "torch"


def unavailable(description: Mapping[str, Any]) -> str | None:
    """Why this format cannot be made here, known without trying."""
    return None


def export(job: ExportJob, path: Path) -> dict[str, Any]:
    """Writes an ExportedProgram with dynamic axes."""
    program = torch.export.export(job.module, job.example, dynamic_shapes=job.spec.dynamic_shapes())
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
    return tensor_runner(torch.export.load(path).module(), names)
