"""INT8 after quantization-aware training (QAT): the network learns to bear the rounding.

torchao rounds weights and activations to the types of the INT8 file while the network is trained
for a few epochs on the training split: to give the answers of the FP32 network (distillation,
Hinton et al. 2015, which needs no labels and so bears mixed ones), with dropout off and BatchNorm's
statistics fixed. The weights then go back into the network, which is quantized as onnx-int8 is.
The checkpoint stays as it is.

N batch, K classes.
"""

import copy
import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from exporters import onnx_int8
from exporters.candidate import ExportJob
from exporters.evaluation import run_all, tensor_runner
from exporters.onnx_int8 import PRECISION, RUNTIME, load, read_back
from exporters.program import graph_unavailable
from tasks.base import build_task

__all__ = ["FILE", "PRECISION", "RUNTIME", "export", "load", "read_back", "unavailable"]

FILE = "model.qat.onnx"
LEARNING_RATE = 1e-4
DYNAMIC = ("rnn", "lstm", "gru", "attention", "softmax")  # parts of operators' names


def unavailable(description: Mapping[str, Any]) -> str | None:
    """Why this format cannot be made here, known without trying."""
    if importlib.util.find_spec("torchao") is None:
        return "needs torchao: pip install 'torchao>=0.18,<0.19'"
    operators = description["probe"]["operators"]
    dynamic = any(part in name for name in operators for part in DYNAMIC)
    if dynamic or "convolution" not in operators:
        return (
            "only convolution networks are trained for INT8: recurrent, attention and purely "
            "linear ones are quantized dynamically, with ranges found at run time (onnx-int8)"
        )
    return graph_unavailable(description)


def export(job: ExportJob, path: Path) -> dict[str, Any]:
    """Trains a copy and quantizes it; the details hold the curve."""
    if job.options.training is None:
        raise ValueError("QAT needs the training data: give --data.root")
    with torch.enable_grad():
        module, curve = fine_tune(job, job.options.training())
    details = onnx_int8.export(replace(job, module=module, float_onnx=None), path)
    metric = build_task(job.description).main_metric
    lines = [
        f"epoch {entry['epoch']}: loss {entry['loss']:.5f}"
        + (f", validation {metric} {entry[f'val_{metric}']:.2f} %" if job.validation else "")
        for entry in curve
    ]
    notes = [f"fine-tuned: {'; '.join(lines)}", *details["notes"]]
    return details | {"curve": curve, "notes": notes, "more_in_fp32": False}


def fine_tune(
    job: ExportJob, batches: Callable[[int], Iterable[tuple[Tensor, ...]]]
) -> tuple[nn.Module, list[dict[str, Any]]]:
    """Trains as the file's header says.

    Returns:
        The float network with the new weights, and one entry an epoch: "epoch", "loss" (mean
        Kullback-Leibler divergence a sample) and the score, such as "val_accuracy", in percent,
        with rounding.

    Raises:
        ValueError: There was nothing to train on, or the loss is not finite.
    """
    student = rounded(job)
    optimizer = torch.optim.AdamW(student.parameters(), LEARNING_RATE, weight_decay=0.0)
    epochs = job.options.qat_epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda epoch: (1 + math.cos(math.pi * epoch / epochs)) / 2
    )
    curve = []
    for epoch in range(epochs):
        total, count = 0.0, 0
        for inputs in batches(epoch):
            with torch.no_grad():
                expected = job.module(*inputs).softmax(dim=1)  # [N,K]
            loss = kl_div(student(*inputs).log_softmax(dim=1), expected, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + len(expected) * float(loss.detach()), count + len(expected)
        if count == 0 or not math.isfinite(total):
            raise ValueError(f"QAT: epoch {epoch} saw {count} samples, loss {total:g}")
        schedule.step()
        curve.append({"epoch": epoch, "loss": total / count, **validate(student, job)})
    module = copy.deepcopy(job.module)
    trained = student.state_dict()
    module.load_state_dict({name: trained[name] for name in module.state_dict()})
    return module, curve


def rounded(job: ExportJob) -> nn.Module:
    """A trainable copy that rounds in every forward pass."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()  # U8 activations, S8 weights per channel
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_qat=True))
    # BatchNorm is found behind its convolution only in training mode; with strict=False a layer
    # that is used twice breaks the preparation
    program = torch.export.export(
        copy.deepcopy(job.module).train(),
        job.example,
        dynamic_shapes=job.spec.dynamic_shapes(),
        strict=True,
    )
    student = prepare_qat_pt2e(program.module(), quantizer)
    move_exported_model_to_eval(student)  # fixes BatchNorm and dropout, not the ranges
    return student


def validate(student: nn.Module, job: ExportJob) -> dict[str, float | None]:
    """The score with rounding, by its name, in percent; None without validation samples."""
    task = build_task(job.description)
    name = f"val_{task.main_metric}"
    if job.validation is None:
        return {name: None}
    inputs = {name: job.validation[name] for name in job.spec.names}
    outputs = run_all(tensor_runner(student, job.spec.names), inputs)
    return {name: 100 * task.evaluate(outputs, job.validation["targets"])[task.main_metric]}
