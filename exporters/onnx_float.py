"""ONNX in float32: one file with named dynamic axes that says what it is.

Made by torch's dynamo exporter. Class names, preprocessing and input bounds are in the file's
metadata; traces of the machine it was made on are taken out. A model beyond protobuf's 2 GB has its
weights in a second file, `<name>.data`.
"""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from exporters.candidate import ExportJob
from exporters.evaluation import Runner
from exporters.operators import lacks_translation
from exporters.process import one_line
from exporters.program import graph_unavailable
from exporters.runtime import open_session, run_session
from exporters.spec import ExportSpec

FILE = "model.onnx"
PRECISION = "fp32"
RUNTIME = "onnxruntime"

OUTPUT = "logits"
MAX_BYTES = 2_000_000_000  # protobuf's limit is 2 GiB
BOUNDS = "axis_bounds"


def unavailable(description: Mapping[str, Any]) -> str | None:
    """Why no ONNX file can be made, known without trying."""
    return graph_unavailable(description) or lacks_translation(description)


def export(job: ExportJob, path: Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Writes the file and checks it with onnx's own checker."""
    import onnx

    program = to_program(job)
    clean(program.model, job)
    weights = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    program.save(str(path), external_data=weights > max_bytes)
    onnx.checker.check_model(str(path), full_check=True)
    return {}


def to_program(job: ExportJob) -> Any:
    """Runs torch's exporter."""
    translations = job.options.translations
    table = translations(job.operators) if translations is not None else {}
    with warnings.catch_warnings(), one_cause():
        # https://github.com/pytorch/pytorch/issues/160761: torch uses its own deprecated class
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning, r"(copyreg|torch)\b.*")
        # one Dim shared by the inputs of a text is meant to have one name
        warnings.filterwarnings("ignore", "# The axis name: .* will not be used", UserWarning)
        return torch.onnx.export(
            job.module,
            job.example,
            dynamo=True,
            opset_version=job.options.opset,
            input_names=job.spec.names,
            output_names=[OUTPUT],
            dynamic_shapes=job.spec.dynamic_shapes(),
            verbose=False,
            custom_translation_table=dict(table) or None,
        )


@contextmanager
def one_cause() -> Iterator[None]:
    """Tells what an error of torch's exporter comes from, where that says many lines of advice.

    Raises:
        ValueError: With the innermost cause.
    """
    try:
        yield
    except torch.onnx.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if cause is error:
            raise
        raise ValueError(f"torch.onnx cannot translate it: {one_line(cause)}") from error


def clean(model: Any, job: ExportJob) -> None:
    """Adds what the file should say; takes out stack traces with the paths of this machine."""
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()
    for value in [*model.graph.inputs, *model.graph.initializers.values()]:
        value.metadata_props.clear()
    model.metadata_props.update(job.metadata())
    model.metadata_props[BOUNDS] = json.dumps(job.spec.dynamic)


def read_back(path: Path, spec: ExportSpec) -> dict[str, Any]:
    """Reads opset, names, axes and bounds from the saved file.

    Raises:
        ValueError: Something is not as it was asked for; all differences in one message.
    """
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    versions = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    problems = []
    expected = [item.describe() for item in spec.inputs]
    found = [describe(value) for value in model.graph.input]
    if found != expected:
        problems.append(f"inputs are {'; '.join(found)}, expected {'; '.join(expected)}")
    outputs = [value.name for value in model.graph.output]
    if outputs != [OUTPUT]:
        problems.append(f"outputs are {', '.join(outputs)}, expected {OUTPUT}")
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    if json.loads(metadata.get(BOUNDS, "{}")) != {k: list(v) for k, v in spec.dynamic.items()}:
        problems.append("the bounds of the dynamic axes are not in the metadata")
    if problems:
        raise ValueError("; ".join(problems))
    return {"opset": versions["ai.onnx"], "inputs": found, "outputs": outputs}


def describe(value: Any) -> str:
    """An ONNX graph input in the words of `InputSpec.describe`."""
    import onnx

    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    axes = [axis.dim_param or str(axis.dim_value) for axis in tensor.shape.dim]
    return f"{value.name} {dtype} [{','.join(axes)}]"


def load(path: Path, names: list[str], threads: int | None) -> Runner:
    """Arrays by name in, logits out."""
    session = open_session(path, threads)
    return lambda inputs: run_session(session, inputs)
