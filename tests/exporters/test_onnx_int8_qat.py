"""Quantization-aware training: what it changes, what it tells, and for which networks it is."""

import copy
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from exporters import onnx_int8_qat
from exporters.candidate import ExportJob, Options
from exporters.onnx_int8_qat import unavailable
from tests.exporters.other_networks import ReusedLayers, bench


def two_batches(job: ExportJob) -> Callable[[int], Iterator[tuple[Tensor, ...]]]:
    images = torch.from_numpy(job.calibration["images"])

    def batches(epoch: int) -> Iterator[tuple[Tensor, ...]]:
        yield from ((part,) for part in images.chunk(2))

    return batches


@pytest.mark.slow
def test_it_trains_a_copy_and_tells_its_curve(tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = bench(ReusedLayers(), tmp_path)
    job = replace(made.job, options=Options(0, lambda: two_batches(made.job), 4))
    before = copy.deepcopy(job.module.state_dict())
    path = tmp_path / "files" / onnx_int8_qat.FILE
    path.parent.mkdir()
    details = onnx_int8_qat.export(job, path)
    curve = details["curve"]
    assert [entry["epoch"] for entry in curve] == [0, 1, 2, 3]
    assert curve[-1]["loss"] < curve[0]["loss"]
    assert curve[-1]["val_accuracy"] > 90
    assert details["notes"][0].startswith("fine-tuned: epoch 0: loss 0.")
    assert "validation accuracy" in details["notes"][0]
    assert details["left_in_fp32"] == ["node_linear"]
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert made.judge("onnx-int8-qat", path).verdict == "passed"
    for name, tensor in job.module.state_dict().items():
        assert torch.equal(tensor, before[name])
    module, _ = onnx_int8_qat.fine_tune(job, two_batches(job))
    after = module.state_dict()
    assert after.keys() == before.keys()
    assert not torch.equal(after["first.weight"], before["first.weight"])
    assert torch.equal(after["norm.running_mean"], before["norm.running_mean"])


def test_without_training_data_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs the training data"):
        onnx_int8_qat.export(bench(ReusedLayers(), tmp_path).job, tmp_path / "none.onnx")


@pytest.mark.parametrize(
    ("operators", "possible"),
    [
        (["convolution", "addmm"], True),
        (["addmm"], False),
        (["convolution", "mkldnn_rnn_layer"], False),
        (["convolution", "_scaled_dot_product_flash_attention_for_cpu"], False),
    ],
)
def test_it_is_for_convolution_networks(operators: list[str], possible: bool) -> None:
    reason = unavailable({"probe": {"operators": operators, "decisions": []}})
    assert (reason is None) is possible
    assert possible or "only convolution networks" in reason


def test_without_torchao_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    reason = unavailable({"probe": {"operators": ["convolution"], "decisions": []}})
    assert reason == "needs torchao: pip install 'torchao>=0.18,<0.19'"
