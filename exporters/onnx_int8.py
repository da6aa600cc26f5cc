"""ONNX in INT8, made from the FP32 ONNX file and run by ONNX Runtime (or OpenVINO).

Convolution networks are quantized statically (QDQ; activations U8, weights S8 per channel, MinMax
over calibration samples) with the node that makes the logits left in FP32. Networks with LSTM or
attention are quantized dynamically, embeddings (Gather) included, convolutions left in FP32.
"""

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exporters import onnx_float
from exporters.candidate import ExportJob
from exporters.machine import has_vnni
from exporters.onnx_float import RUNTIME, load, unavailable
from exporters.spec import ExportSpec

__all__ = ["FILE", "PRECISION", "RUNTIME", "export", "load", "read_back", "unavailable"]

FILE = "model.int8.onnx"
PRECISION = "int8"

MIN_CALIBRATION = 200
CALIBRATION_BATCH = 32
MAX_RATIO = 3  # of calibration statistics to those of the training inputs
WEIGHTED = ("Conv", "Gemm", "MatMul")
RECURRENT = ("LSTM", "GRU", "RNN", "Scan", "Loop")
DYNAMIC_OPERATORS = ["MatMul", "Attention", "LSTM", "Gather", "EmbedLayerNormalization"]
INTEGER_OPERATORS = (
    "ConvInteger",
    "MatMulInteger",
    "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
    "DynamicQuantizeLSTM",
    "QAttention",
    "QEmbedLayerNormalization",
)


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
        if method == "static":
            details = quantize_static(job, prepared, path, output_node(graph), external)
        else:
            details = quantize_dynamic(prepared, path, external)
    stamp_metadata(path, job)
    return details | note | {"method": method}


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


def plan(graph: Any) -> str:
    """ "static" for a convolution network, "dynamic" where there is recurrence or attention."""
    operators = {node.op_type for node in graph.node}
    has_attention = any(
        producer.op_type == "Softmax" and user.op_type == "MatMul"
        for producer in graph.node
        for user in graph.node
        if set(producer.output) & set(user.input)
    )
    if operators & {*RECURRENT, "Attention"} or has_attention or "Conv" not in operators:
        return "dynamic"
    return "static"


def output_node(graph: Any) -> str:
    """Name of the last node with weights: the one that makes the logits."""
    producers = {name: node for node in graph.node for name in node.output}
    waiting = [graph.output[0].name]
    for name in waiting:
        node = producers.get(name)
        if node is None:
            continue
        if node.op_type in WEIGHTED:
            return node.name
        waiting += node.input
    raise ValueError("no node with weights leads to the logits")


def quantize_static(
    job: ExportJob, prepared: Path, path: Path, last_node: str, external: bool
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
        nodes_to_exclude=[last_node],
        calibrate_method=quantization.CalibrationMethod.MinMax,
        use_external_data_format=external,
    )
    return {
        "calibration": note,
        "reduce_range": reduce_range,
        "left_in_fp32": [last_node],
        "activations": "uint8",
        "weights": "int8 per channel",
    }


def quantize_dynamic(prepared: Path, path: Path, external: bool) -> dict[str, Any]:
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
        use_external_data_format=external,
    )
    return {"reduce_range": reduce_range, "left_in_fp32": ["Conv"], "weights": "int8"}


def check_calibration(
    samples: Mapping[str, np.ndarray],
    normalisation: Mapping[str, list[float]] | None,
    training_size: int | None,
) -> str:
    """Refuses samples that would give wrong ranges without any other sign.

    Args:
        samples: Input name -> array; images are [N,C,H,W].
        normalisation: Mean and std of each channel of the training inputs, in 0..1.
        training_size: Samples in the whole training split, which may be fewer than are asked for.

    Returns:
        What was used, in words.

    Raises:
        ValueError: Too few samples, values that are not finite, or other statistics.
    """
    count = len(next(iter(samples.values())))
    if count < MIN_CALIBRATION and count != training_size:
        raise ValueError(
            f"{count} calibration samples; at least {MIN_CALIBRATION} are needed "
            "(or all training samples where there are fewer)"
        )
    for name, array in samples.items():
        if not np.isfinite(array).all():
            raise ValueError(f"calibration input {name!r} holds values that are not finite")
        if array.ndim == 4 and normalisation is not None:
            check_statistics(name, array, normalisation)
    return f"{count} samples" + (" (all there are)" if count < MIN_CALIBRATION else "")


def check_statistics(
    name: str, images: np.ndarray, normalisation: Mapping[str, list[float]]
) -> None:
    """Compares each channel's mean and std with those of the training inputs.

    Raises:
        ValueError: The mean is more than 3 std away, or the std is not within a factor of 3.
    """
    scaled = images.astype(np.float64) / 255  # [N,C,H,W]
    means, stds = scaled.mean(axis=(0, 2, 3)), scaled.std(axis=(0, 2, 3))
    for channel, (mean, std) in enumerate(
        zip(normalisation["mean"], normalisation["std"], strict=True)
    ):
        found_mean, found_std = means[channel], stds[channel]
        far = abs(found_mean - mean) > MAX_RATIO * std
        if far or not std / MAX_RATIO <= found_std <= std * MAX_RATIO:
            raise ValueError(
                f"calibration input {name!r}, channel {channel}: mean {found_mean:.3g} and std "
                f"{found_std:.3g}, but training inputs have mean {mean:.3g} and std {std:.3g}"
            )


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


def count_quantized(graph: Any) -> int:
    """Nodes that compute with integers, or read stored integers (QDQ weights, embeddings)."""
    stored = {tensor.name for tensor in graph.initializer}
    from_stored = {
        node.output[0]
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in stored
    }
    quantized_tables = {
        node.input[0] for node in graph.node if node.op_type == "Gather" and node.input[0] in stored
    }
    dequantized = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    return sum(
        node.op_type in INTEGER_OPERATORS
        or (node.op_type in (*WEIGHTED, "Gather") and bool(from_stored & set(node.input)))
        or (
            node.op_type == "Gather"
            and node.input[0] in quantized_tables
            and node.output[0] in dequantized
        )
        for node in graph.node
    )
