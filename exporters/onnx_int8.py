"""ONNX in INT8, made from the FP32 ONNX file and run by ONNX Runtime (or OpenVINO).

Convolution networks are quantized statically (QDQ; activations U8, weights S8 per channel, MinMax
over calibration samples). Networks with LSTM or attention are quantized dynamically, embeddings
(Gather) included, convolutions left in FP32.

What else stays in FP32 is a list that is gone down only while the gate's limits are not kept.
Static: the node that makes the logits (large weights of it are stored in INT8 all the same); then
the first convolution too; then everything but convolutions; then depthwise convolutions. Dynamic:
nothing; then the node that makes the logits; then the embeddings.
"""

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exporters import onnx_float
from exporters.calibration_samples import check_calibration
from exporters.candidate import ExportJob
from exporters.machine import has_vnni
from exporters.onnx_float import RUNTIME, load, unavailable
from exporters.quantized_graph import count_quantized, kept_in_fp32, plan, shortened
from exporters.spec import ExportSpec

__all__ = ["FILE", "PRECISION", "RUNTIME", "export", "load", "read_back", "unavailable"]

FILE = "model.int8.onnx"
PRECISION = "int8"

CALIBRATION_BATCH = 32
MIN_STORED_BYTES = 100_000
DYNAMIC_OPERATORS = ["MatMul", "Attention", "LSTM", "Gather", "EmbedLayerNormalization"]


def export(job: ExportJob, path: Path, max_bytes: int = onnx_float.MAX_BYTES) -> dict[str, Any]:
    """Quantizes the FP32 file (made here first, where this run has none)."""
    import onnx

    path = path.resolve()
    # onnxruntime's shape inference leaves files in the current folder when it gives up
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        floating = job.float_onnx
        if floating is None:
            floating = Path(scratch) / "float.onnx"
            onnx_float.export(job, floating, max_bytes=max_bytes)
        external = size_on_disk(floating) > max_bytes
        prepared = Path(scratch) / "prepared.onnx"
        note = prepare(floating, prepared, external)
        graph = onnx.load(str(prepared), load_external_data=False).graph
        method = plan(graph)
        stages = kept_in_fp32(graph, method)
        kept = stages[job.options.attempt]
        if method == "static":
            details = quantize_static(job, prepared, path, kept, external)
        else:
            details = quantize_dynamic(prepared, path, kept, external)
        if method == "static" and not external:
            store_in_int8(path, kept[0])
    stamp_metadata(path, job)
    facts = {
        "method": method,
        "left_in_fp32": kept,
        "more_in_fp32": job.options.attempt + 1 < len(stages),  # of the list above
        "notes": [f"{method}, in FP32: {shortened(kept)}"],
    }
    return details | note | facts


def size_on_disk(path: Path) -> int:
    """Bytes of a model and of its external data."""
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))


def prepare(floating: Path, prepared: Path, external: bool) -> dict[str, Any]:
    """Folds constants and infers shapes, which decides what can be quantized."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    def run(skip_symbolic_shape: bool) -> None:
        quant_pre_process(
            str(floating),
            str(prepared),
            skip_symbolic_shape=skip_symbolic_shape,
            save_as_external_data=external,
            external_data_location=f"{prepared.name}.data",
            all_tensors_to_one_file=True,
        )

    try:
        run(skip_symbolic_shape=False)
        return {}
    except Exception as error:  # symbolic inference raises bare Exception on unknown operators
        run(skip_symbolic_shape=True)
        return {"shape_inference": f"without symbolic shapes ({type(error).__name__})"}


def quantize_static(
    job: ExportJob, prepared: Path, path: Path, kept: list[str], external: bool
) -> dict[str, Any]:
    """QDQ with MinMax ranges from the calibration samples."""
    from onnxruntime import quantization

    if job.calibration is None:
        raise ValueError("static INT8 needs calibration samples (calibration.npz of the run)")
    note = check_calibration(
        job.calibration, job.description.get("normalisation"), job.training_size
    )
    reduce_range = not has_vnni()
    logging.getLogger().setLevel(logging.ERROR)  # onnxruntime logs hints on the root logger
    quantization.quantize_static(
        str(prepared),
        str(path),
        SampleReader(job.spec, job.calibration),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        per_channel=True,
        reduce_range=reduce_range,
        nodes_to_exclude=kept,
        calibrate_method=quantization.CalibrationMethod.MinMax,
        use_external_data_format=external,
    )
    return {
        "calibration": note,
        "reduce_range": reduce_range,
        "activations": "uint8",
        "weights": "int8 per channel",
    }


def quantize_dynamic(prepared: Path, path: Path, kept: list[str], external: bool) -> dict[str, Any]:
    """Weights INT8; the ranges of activations are found at run time."""
    from onnxruntime import quantization

    reduce_range = not has_vnni()
    logging.getLogger().setLevel(logging.ERROR)  # onnxruntime logs hints on the root logger
    quantization.quantize_dynamic(
        str(prepared),
        str(path),
        op_types_to_quantize=DYNAMIC_OPERATORS,
        per_channel=False,
        reduce_range=reduce_range,
        weight_type=quantization.QuantType.QInt8,
        nodes_to_exclude=kept,
        use_external_data_format=external,
    )
    return {"reduce_range": reduce_range, "weights": "int8"}


class SampleReader:
    """Feeds calibration samples in batches, in the form that onnxruntime asks for."""

    def __init__(self, spec: ExportSpec, samples: Mapping[str, np.ndarray]) -> None:
        self.batches = iter_batches(spec.names, samples, CALIBRATION_BATCH)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


def iter_batches(
    names: list[str], samples: Mapping[str, np.ndarray], size: int
) -> Iterator[dict[str, np.ndarray]]:
    """Slices of all inputs at once; the last may be shorter."""
    for start in range(0, len(samples[names[0]]), size):
        yield {name: samples[name][start : start + size] for name in names}


def store_in_int8(path: Path, name: str) -> None:
    """Stores large weights of a node that computes in FP32 as INT8 per channel, nothing else."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(path))
    graph = model.graph
    index, node = next((i, n) for i, n in enumerate(graph.node) if n.name == name)
    stored = [t for t in graph.initializer if t.name in node.input[1:2] and len(t.dims) == 2]
    for tensor in stored:
        weights = numpy_helper.to_array(tensor)
        if weights.nbytes < MIN_STORED_BYTES:
            continue
        transposed = any(entry.name == "transB" and entry.i for entry in node.attribute)
        axis = 0 if transposed else 1  # the one with the classes
        scale = np.abs(weights).max(axis=1 - axis, keepdims=True) / np.float32(127)
        rounded = np.round(weights / np.where(scale > 0, scale, 1)).astype(np.int8)
        graph.initializer.remove(tensor)
        names = [f"{tensor.name}_stored", f"{tensor.name}_stored_scale"]
        graph.initializer.append(numpy_helper.from_array(rounded, names[0]))
        graph.initializer.append(numpy_helper.from_array(scale.reshape(-1), names[1]))
        restore = onnx.helper.make_node("DequantizeLinear", names, [tensor.name], axis=axis)
        graph.node.insert(index, restore)
    onnx.save(model, str(path))


def stamp_metadata(path: Path, job: ExportJob) -> None:
    """Writes the metadata anew: the quantizer drops it."""
    import json

    import onnx

    model = onnx.load(str(path), load_external_data=False)
    values = job.metadata() | {onnx_float.BOUNDS: json.dumps(job.spec.dynamic)}
    onnx.helper.set_model_props(model, values)
    path.write_bytes(model.SerializeToString())


def read_back(path: Path, spec: ExportSpec) -> dict[str, Any]:
    """As for FP32, and counts the quantized operators.

    Raises:
        ValueError: Something is not as it was asked for, or nothing is quantized.
    """
    import onnx

    facts = onnx_float.read_back(path, spec)
    graph = onnx.load(str(path), load_external_data=False).graph
    count = count_quantized(graph)
    if count == 0:
        raise ValueError("no operator is quantized")
    return facts | {"quantized_operators": count}
