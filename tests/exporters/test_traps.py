"""Ten ways in which exports go wrong without an error: each made on purpose, each caught."""

import copy
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from exporters import aoti, onnx_float, onnx_int8, onnx_int8_qat, pt2, torchscript
from exporters.aoti import CheckedPackage
from exporters.candidate import ExportJob, Options
from exporters.fit_check import check
from exporters.process import run_child
from exporters.program import to_program
from exporters.spec import assert_exportable
from lightning_modules.networks.text_transformer import TextTransformer
from tests.exporters.other_networks import (
    AttentionPooledLSTM,
    Bench,
    Branching,
    ReusedLayers,
    bench,
)

pytestmark = pytest.mark.slow


def folder(parent: Path, name: str) -> Path:
    """An empty folder for one file, which is all that the gate may find there."""
    path = parent / name
    path.mkdir()
    return path


def network(kind: type[nn.Module], tmp_path: Path, *arguments: Any) -> Bench:
    torch.manual_seed(0)
    return bench(kind(*arguments), tmp_path)


def save_trace(module: nn.Module, job: ExportJob, path: Path) -> None:
    """A trace of anything, past all checks of the exporter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(module, job.example, check_trace=False), str(path))


def export_onnx(job: ExportJob, *paths: Path) -> None:
    """One process, one or more exports."""
    for path in paths:
        with torch.no_grad():
            onnx_float.export(job, path)


def test_1_a_second_lstm_in_the_same_process_freezes_the_length(tmp_path: Path) -> None:
    """So each export has a process of its own."""
    made = network(AttentionPooledLSTM, tmp_path)
    first, second = (folder(tmp_path, name) / onnx_float.FILE for name in ("first", "second"))
    run_child(export_onnx, made.job, first, second, timeout=120, log=tmp_path / "log")
    assert made.judge("onnx", first).verdict == "passed"
    verdict = made.judge("onnx", second)
    assert verdict.verdict == "failed"
    assert "inputs are tokens int64 [batch,30]" in verdict.reasons[0]


def export_without_loops(job: ExportJob, path: Path) -> None:
    """What torch.export does by itself, when it may choose which axes are dynamic."""
    chosen = torch.export.Dim.AUTO
    dynamic = tuple(dict.fromkeys(axes, chosen) for axes in job.spec.dynamic_shapes())
    program = torch.export.export(job.module, job.example, dynamic_shapes=dynamic)
    torch.export.save(program, path)


def test_2_an_lstm_without_the_decomposition(tmp_path: Path) -> None:
    made = network(AttentionPooledLSTM, tmp_path)
    wrong = folder(tmp_path, "wrong") / pt2.FILE
    run_child(export_without_loops, made.job, wrong, timeout=120, log=tmp_path / "log")
    verdict = made.judge("pt2", wrong)
    assert verdict.verdict == "failed"
    assert verdict.reasons[0] == "axis 'length' of tokens is fixed at 30"
    assert "length 1: " in "; ".join(verdict.reasons)
    right = folder(tmp_path, "right") / pt2.FILE
    run_child(pt2.export, made.job, right, timeout=120, log=tmp_path / "log")
    assert made.judge("pt2", right).verdict == "passed"


def test_3_machine_code_that_checks_nothing(tmp_path: Path) -> None:
    """A package for a batch of 2; other dtypes and layouts."""
    made = network(ReusedLayers, tmp_path)
    right = folder(tmp_path, "right") / aoti.FILE
    run_child(aoti.export, made.job, right, timeout=500, log=tmp_path / "log")
    assert made.judge("aoti", right).verdict == "passed"
    run = CheckedPackage(right)
    images = torch.from_numpy(made.job.calibration["images"][:2])
    for wrong, message in [
        (images.double(), "found float64"),
        (images[:, :, :4], r"found uint8 \[2,1,4,8\]"),
        (images.transpose(2, 3), "not contiguous"),
        (images[:0], "axis 'batch' of images is 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            run(wrong)
    fixed = replace(made.job, spec=replace(made.job.spec, dynamic={}))
    object.__setattr__(fixed.spec, "inputs", (replace(fixed.spec.inputs[0], shape=(2, 1, 8, 8)),))
    wrong = folder(tmp_path, "wrong") / aoti.FILE
    run_child(aoti.export, fixed, wrong, timeout=500, log=tmp_path / "log")
    assert made.judge("aoti", wrong).verdict == "failed"


@pytest.mark.parametrize("name", ["pt2", "torchscript"])
def test_4_a_network_left_in_training_mode(name: str, tmp_path: Path) -> None:
    made = network(ReusedLayers, tmp_path)
    training = copy.deepcopy(made.job.module).train()
    with pytest.raises(ValueError, match="is in training mode"):
        assert_exportable(training)
    job = replace(made.job, module=training)
    path = folder(tmp_path, "file") / "model"
    if name == "pt2":
        program = to_program(training, job.example, job.spec.dynamic_shapes())
        path = path.with_name(pt2.FILE)
        torch.export.save(program, path)
    else:
        path = path.with_name(torchscript.FILE)
        save_trace(training, job, path)
    verdict = made.judge(name, path)
    assert verdict.verdict == "failed"
    assert "logits differ by up to" in verdict.reasons[0]


def epoch_of(batches: list[tuple[Tensor, ...]]) -> Any:
    return lambda epoch: batches


def train_from(images: np.ndarray) -> Any:
    """A training source of one batch, or of none."""
    return epoch_of([(torch.from_numpy(images),)] if len(images) else [])


def test_5_qat_of_a_network_that_uses_a_layer_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strict exporter is what makes it work."""
    made = network(ReusedLayers, tmp_path)
    options = Options(0, partial(train_from, made.job.calibration["images"]), 1)
    job = replace(made.job, options=options)
    path = folder(tmp_path, "file") / onnx_int8_qat.FILE
    onnx_int8_qat.export(job, path)
    assert made.judge("onnx-int8-qat", path).verdict == "passed"
    real = torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *a, strict, **k: real(*a, strict=False, **k))
    with pytest.raises(Exception, match=r"."):
        onnx_int8_qat.rounded(job)


def test_6_ranges_that_have_seen_no_sample(tmp_path: Path) -> None:
    """Converted straight after it was prepared; and QAT without a batch."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    made = network(ReusedLayers, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = convert_pt2e(onnx_int8_qat.rounded(made.job))
        program = torch.export.export(
            converted, made.job.example, dynamic_shapes=made.job.spec.dynamic_shapes()
        )
        path = folder(tmp_path, "file") / pt2.FILE
        torch.export.save(program, path)
        verdict = made.judge("pt2", path, "int8")
    assert verdict.verdict == "failed"
    assert "signal to quantization noise" in verdict.reasons[-1]
    empty = Options(0, partial(train_from, np.zeros(0)), 1)
    with pytest.raises(ValueError, match="epoch 0 saw 0 samples"):
        onnx_int8_qat.export(replace(made.job, options=empty), tmp_path / "none.onnx")


@pytest.mark.parametrize(
    ("opset", "reason"),
    [(18, "opset 20 was asked for, the file has 18"), (23, "running Attention node")],
)
def test_7_another_opset(opset: int, reason: str, tmp_path: Path) -> None:
    made = network(TextTransformer, tmp_path, 20, 3, 60, 16, 2, 1)
    path = folder(tmp_path, "file") / onnx_float.FILE
    with torch.no_grad():
        onnx_float.export(replace(made.job, options=Options(opset=opset)), path)
    verdict = made.judge("onnx", path)
    assert verdict.verdict == "failed"
    assert reason in "; ".join(verdict.reasons)


def test_8_an_example_of_one(tmp_path: Path) -> None:
    made = network(ReusedLayers, tmp_path)
    one = (made.job.example[0][:1],)
    with pytest.raises(ValueError, match="needs a batch of at least 2"):
        check(made.job.module, made.job.spec, one)
    path = folder(tmp_path, "file") / pt2.FILE
    program = torch.export.export(
        made.job.module, one, dynamic_shapes=({0: torch.export.Dim.AUTO},)
    )
    torch.export.save(program, path)
    verdict = made.judge("pt2", path)
    assert verdict.verdict == "failed"
    assert verdict.reasons[0] == "axis 'batch' of images is fixed at 1"
    assert "batch 2: " in verdict.reasons[1]


def darkened(images: np.ndarray) -> np.ndarray:
    return images * 0


def one_outlier(images: np.ndarray) -> np.ndarray:
    changed = images.astype(np.float32)
    changed[0] *= 1e6
    return changed


@pytest.mark.parametrize("spoil", [darkened, one_outlier, lambda x: x.astype(np.float32) * 255])
def test_9_bad_calibration_samples(
    spoil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused beforehand; where they are not, the gate sees the result."""
    made = network(ReusedLayers, tmp_path)
    images = made.job.calibration["images"]
    scaled = images / 255
    normalisation = {"mean": [scaled.mean()], "std": [scaled.std()]}
    job = replace(
        made.job,
        calibration={"images": spoil(images)},
        description=made.job.description | {"normalisation": normalisation},
    )
    path = folder(tmp_path, "file") / onnx_int8.FILE
    with pytest.raises(ValueError, match="but training inputs have mean"):
        onnx_int8.export(job, path)
    monkeypatch.setattr(onnx_int8, "check_calibration", lambda *_: "unchecked")
    fitting = {"images": np.clip(spoil(images), 0, 255).astype(np.uint8) // 255}
    onnx_int8.export(replace(job, calibration=fitting), path)
    assert made.judge("onnx-int8", path).verdict == "failed"


class Module(pl.LightningModule):
    """What Lightning's own export sees."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> Tensor:
        return self.module(images)


def test_10_lightnings_own_export_has_a_fixed_batch(tmp_path: Path) -> None:
    made = network(ReusedLayers, tmp_path)
    path = folder(tmp_path, "file") / onnx_float.FILE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Module(made.job.module).to_onnx(path, made.job.example, dynamo=True)
    assert {p.name for p in path.parent.iterdir()} == {path.name, f"{path.name}.data"}
    verdict = made.judge("onnx", path)
    assert verdict.verdict == "failed"
    assert "inputs are images uint8 [2,1,8,8], expected" in verdict.reasons[0]


def test_a_trace_that_lost_a_branch_and_a_script_that_keeps_it(tmp_path: Path) -> None:
    made = network(Branching, tmp_path)
    kept = folder(tmp_path, "kept") / torchscript.FILE
    with torch.no_grad():
        details = torchscript.export(made.job, kept)
    assert details["notes"][0].startswith("scripted")
    assert made.judge("torchscript", kept).verdict == "passed"
    lost = folder(tmp_path, "lost") / torchscript.FILE
    save_trace(made.job.module, made.job, lost)
    verdict = made.judge("torchscript", lost)
    assert verdict.verdict == "failed"
    assert "logits differ by up to" in verdict.reasons[0]
