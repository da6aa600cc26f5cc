"""One format's child process: load the checkpoint afresh, export it, hash what was written."""

import importlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from exporters import EXPORTERS, OPSET
from exporters.bundle import describe_files
from exporters.operators import (
    Translations,
    add_libraries,
    libraries_beside,
    load_libraries,
)
from exporters.program import operators_of
from exporters.spec import ExportSpec, assert_exportable
from tasks.base import build_task

# -> (the deployable module, the checkpoint's description)
Loader = Callable[[], tuple[nn.Module, dict[str, Any]]]
# opens the training split in the child that calls it -> epoch -> batches of input tensors
TrainingSource = Callable[[], Callable[[int], Iterable[tuple[Tensor, ...]]]]


@dataclass(frozen=True)
class Options:
    """What only some formats ask for."""

    attempt: int = 0  # how far down the list of what stays in FP32
    training: TrainingSource | None = None
    qat_epochs: int = 3
    opset: int = OPSET
    translations: Translations | None = None  # of operators that ONNX's exporter does not know


@dataclass(frozen=True)
class ExportJob:
    """What an exporter is given; it writes one file and returns facts about it."""

    module: nn.Module  # float32, on the CPU, in evaluation mode
    spec: ExportSpec
    example: tuple[Tensor, ...]  # batch of 2
    description: dict[str, Any]
    calibration: dict[str, np.ndarray] | None  # training samples by input name
    training_size: int | None  # samples in the whole training split
    float_onnx: Path | None  # the FP32 ONNX file, where this run has already proven one
    validation: dict[str, np.ndarray] | None = None  # inputs by name, and "targets"
    options: Options = Options()
    operators: Sequence[str] = ()  # of the module, such as "aten::relu"

    def metadata(self) -> dict[str, str]:
        """What a file should say about itself, for formats that have room for it."""
        kept = ("preprocessing", "input_spec", "fingerprint", "git_commit")
        task = build_task(self.description)
        kind = self.description.get("preprocessing", {}).get("kind")
        found = {"kind": kind, "task": task.name, **task.values}
        found |= {name: self.description.get(name) for name in kept}
        return {name: json.dumps(value) for name, value in found.items()}


def format_module(name: str) -> Any:
    """The exporter's module behind a short name."""
    return importlib.import_module(EXPORTERS[name])


def make(
    format_name: str,
    load: Loader,
    samples: Path,
    folder: Path,
    float_onnx: Path | None,
    options: Options,
) -> dict[str, Any]:
    """Exports one format into an empty folder.

    Returns:
        "files" (name -> SHA-256 and bytes; the model first), "details" and "seconds".
    """
    start = time.perf_counter()
    module, description = load()
    assert_exportable(module)
    spec = ExportSpec.from_json(description["input_spec"])
    calibration = read_samples(samples / "calibration.npz")
    validation = read_samples(samples / "validation.npz")
    for arrays, origin in ((calibration, "calibration.npz"), (validation, "validation.npz")):
        if arrays is not None:
            spec.check_arrays(arrays, origin)
    exporter = format_module(format_name)
    folder.mkdir(parents=True)
    job = ExportJob(
        module,
        spec,
        spec.example(validation),
        description,
        None if calibration is None else {name: calibration[name] for name in spec.names},
        None if calibration is None else int(calibration.get("total", -1)),
        float_onnx,
        validation,
        options,
        operators_of(module, spec.example(validation)),
    )
    with torch.no_grad():
        details = exporter.export(job, folder / exporter.FILE)
    if exporter.RUNTIME == "torch" and (libraries := add_libraries(job.operators, folder)):
        note = f"loads with {', '.join(libraries)} (torch.ops.load_library), which --trust allows"
        details = details | {"libraries": libraries, "notes": [*details.get("notes", ()), note]}
    return {
        "files": describe_files(folder, exporter.FILE),
        "details": details,
        "seconds": round(time.perf_counter() - start, 2),
    }


def read_samples(path: Path) -> dict[str, np.ndarray] | None:
    """Arrays of a samples file, or None where there is none."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays.items())


def runner_of(
    format_name: str,
    path: Path,
    names: list[str],
    threads: int | None,
    libraries: Sequence[Path] | None = None,
) -> Any:
    """Loads a file of the given format for running, after its libraries; None is all beside it."""
    exporter = format_module(format_name)
    if exporter.RUNTIME == "torch":
        load_libraries(libraries_beside(path) if libraries is None else libraries)
    return exporter.load(path, names, threads)


def precision_of(description: Mapping[str, Any]) -> str:
    """The precision that a checkpoint was trained in, as its configuration says."""
    return str((description.get("config") or {}).get("precision") or "32-true")
