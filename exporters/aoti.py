"""AOTInductor: the network as machine code for this kind of CPU, in a package that torch loads.

Loading a package runs native code from it, so one is loaded only straight after it was made, or
with --trust. By itself the code checks nothing: another dtype or layout gives garbage. So a package
says what goes in, and `CheckedPackage` holds every call to it.
"""

import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from exporters.candidate import ExportJob
from exporters.evaluation import Runner, tensor_runner
from exporters.operators import lacks_library
from exporters.program import graph_unavailable, recurrent_loops, to_program
from exporters.spec import ExportSpec

FILE = "model.aoti.pt2"
PRECISION = "fp32"
RUNTIME = "torch"
COMPILERS = ("g++", "c++", "clang++")
SPEC = "input_spec"
ORIGIN = "AOTInductor package"


def unavailable(description: Mapping[str, Any]) -> str | None:
    """Why this format cannot be made here, known without trying."""
    from torch._inductor import config

    if not any(map(shutil.which, filter(None, (*config.cpp.cxx, *COMPILERS)))):
        return "needs a C++ compiler, and there is none on this machine"
    return graph_unavailable(description) or lacks_library(description)


def export(job: ExportJob, path: Path) -> dict[str, Any]:
    """Compiles the graph; takes tens of seconds."""
    from torch import _inductor

    program = to_program(job.module, job.example, job.spec.dynamic_shapes())
    settings = {"aot_inductor.metadata": {SPEC: json.dumps(job.description["input_spec"])}}
    with recurrent_loops():
        _inductor.aoti_compile_and_package(
            program, package_path=str(path), inductor_configs=settings
        )
    made_for = metadata(path)["AOTI_CPU_ISA"]
    return {"cpu": made_for, "notes": [f"machine code for CPUs with {made_for}"]}


def metadata(path: Path) -> dict[str, str]:
    """What a package says about itself; runs nothing of it."""
    with zipfile.ZipFile(path) as package:
        name = next(n for n in package.namelist() if n.endswith("wrapper_metadata.json"))
        return json.loads(package.read(name))


class CheckedPackage:
    """A package that refuses what its code would misread."""

    def __init__(self, path: Path) -> None:
        from torch import _inductor

        self.spec = ExportSpec.from_json(json.loads(metadata(path)[SPEC]))
        self.run = _inductor.aoti_load_package(str(path))

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Tensors in the order of the spec -> logits [N,K].

        Raises:
            ValueError: Dtype, layout or shape of an input is not the package's.
        """
        self.spec.check_arrays(
            {item.name: x.numpy() for item, x in zip(self.spec.inputs, inputs, strict=True)},
            ORIGIN,
        )
        sizes: dict[str, int] = {}
        for item, x in zip(self.spec.inputs, inputs, strict=True):
            for axis, size in zip(item.shape, x.shape, strict=True):
                low, high = self.spec.dynamic.get(str(axis), (size, size))
                if not low <= size <= high or sizes.setdefault(str(axis), size) != size:
                    raise ValueError(
                        f"{ORIGIN}: axis {axis!r} of {item.name} is {size}, expected {low} to "
                        f"{high} and the same in all inputs"
                    )
            if not x.is_contiguous():
                raise ValueError(f"{ORIGIN}: {item.name} is not contiguous: strides {x.stride()}")
        return self.run(*inputs)


def read_back(path: Path, spec: ExportSpec) -> dict[str, Any]:
    """Reads the inputs from the package.

    Raises:
        ValueError: They are not those of the spec.
    """
    found = ExportSpec.from_json(json.loads(metadata(path)[SPEC]))
    if found != spec:
        raise ValueError(f"takes {found}, expected {spec}")
    return {"inputs": [item.describe() for item in found.inputs]}


def load(path: Path, names: list[str], threads: int | None) -> Runner:
    """Arrays by name in, logits out; runs native code from the file."""
    if threads is not None:
        torch.set_num_threads(threads)
    return tensor_runner(CheckedPackage(path), names)
