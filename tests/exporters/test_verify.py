"""Deliberate faults, each caught by the gate on the saved file."""

import copy
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from exporters import onnx_float, onnx_int8, pt2, torchscript
from exporters.bundle import describe_files
from exporters.bundle_files import sha256_of
from exporters.candidate import ExportJob
from exporters.evaluation import Case, Evaluation, sweep, tensor_runner, write_evaluation
from exporters.spec import ExportSpec
from exporters.verdict import Evidence, Limits, Verdict, judge
from exporters.verify import compare, prove, score_test
from tasks.single_label import SingleLabel
from tests.exporters import small_run

Reference = tuple[Path, str]
TASK = SingleLabel(["row", "column", "corner"])


def gate(name: str, path: Path, job: ExportJob, evaluation: Reference) -> Verdict:
    files = describe_files(path.parent, path.name)
    input_spec = job.description["input_spec"]
    return judge(prove(name, path.parent, files, input_spec, *evaluation, TASK), Limits())


def traced(module: nn.Module, job: ExportJob, folder: Path, rows: int = 2) -> Path:
    """A trace of anything, past all checks of the exporter."""
    path = folder / torchscript.FILE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = torch.from_numpy(job.calibration["images"][:rows])
        torch.jit.save(torch.jit.trace(module, images, check_trace=False), str(path))
    return path


def test_sound_files_pass(
    job: ExportJob, float_onnx: Path, evaluation: Reference, tmp_path: Path
) -> None:
    for name, module in (("onnx-int8", onnx_int8), ("torchscript", torchscript), ("pt2", pt2)):
        folder = tmp_path / name
        folder.mkdir()
        with torch.no_grad():
            module.export(replace(job, float_onnx=float_onnx), folder / module.FILE)
        assert gate(name, folder / module.FILE, job, evaluation) == Verdict("passed", [])
    assert gate("onnx", float_onnx, job, evaluation) == Verdict("passed", [])


def test_a_network_left_in_training_mode(
    job: ExportJob, evaluation: Reference, tmp_path: Path
) -> None:
    """Dropout and batch statistics baked in."""
    path = traced(copy.deepcopy(job.module).train(), job, tmp_path)
    verdict = gate("torchscript", path, job, evaluation)
    assert verdict.verdict == "failed"
    assert "logits differ by up to" in verdict.reasons[0]


class OnlyOne(nn.Module):
    """Writes the batch of its example into the graph."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> Tensor:
        return self.module(images).reshape(1, 3)


def test_an_example_of_one_that_froze_the_batch(
    job: ExportJob, evaluation: Reference, tmp_path: Path
) -> None:
    path = traced(OnlyOne(job.module).eval(), job, tmp_path, rows=1)
    verdict = gate("torchscript", path, job, evaluation)
    assert verdict.verdict == "failed"
    assert verdict.reasons[0].startswith("batch 2: ")


class LostBranch(nn.Module):
    """The answer depends on the values: a trace keeps one side only."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> Tensor:
        logits = self.module(images)
        return logits if bool((images[0] == images[0, 0, 0, 0]).all()) else logits.flip(1)


def test_a_trace_that_lost_a_branch(
    job: ExportJob, run: Path, tmp_path: Path, evaluation: Reference
) -> None:
    module = LostBranch(job.module).eval()
    flat = replace(job, calibration={"images": np.zeros((2, 1, 8, 8), np.uint8)})
    reference = tmp_path / "evaluation.npz"
    with np.load(run / "samples" / "validation.npz") as file:
        inputs, targets = {"images": file["images"]}, file["targets"]
    runner = tensor_runner(module, ["images"])
    cases = [Case(*case) for case in sweep(job.spec, inputs, runner)]
    logits = np.concatenate(
        [runner({"images": inputs["images"][[i]]}) for i in range(len(targets))]
    )
    write_evaluation(reference, Evaluation(inputs, targets, logits, cases))
    folder = tmp_path / "files"
    folder.mkdir()
    path = traced(module, flat, folder)
    verdict = gate("torchscript", path, job, (reference, sha256_of(reference)))
    assert verdict.verdict == "failed"


def rewritten(float_onnx: Path, folder: Path, change: Any) -> Path:
    model = onnx.load(float_onnx)
    change(model)
    path = folder / onnx_float.FILE
    onnx.save(model, path)
    return path


def corrupt(model: onnx.ModelProto) -> None:
    tensor = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    values = onnx.numpy_helper.to_array(tensor).copy()
    values.flat[::7] *= -1
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def older_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 18


def fixed_axis(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2


def other_name(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "x"
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = "x" if name == "images" else name


def not_finite(model: onnx.ModelProto) -> None:
    tensor = next(t for t in model.graph.initializer if t.name.endswith("head.bias"))
    values = np.full(list(tensor.dims), np.nan, np.float32)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def one_class(model: onnx.ModelProto) -> None:
    tensor = next(t for t in model.graph.initializer if t.name.endswith("head.bias"))
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.float32([99, 0, 0]), tensor.name))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (corrupt, "logits differ by up to"),
        (older_opset, "opset 20 was asked for, the file has 18"),
        (fixed_axis, r"inputs are images uint8 \[2,1,8,8\], expected"),
        (other_name, r"inputs are x uint8"),
        (not_finite, "the logits are not finite"),
    ],
)
def test_faulty_onnx_files(
    job: ExportJob,
    float_onnx: Path,
    evaluation: Reference,
    tmp_path: Path,
    change: Any,
    reason: str,
) -> None:
    verdict = gate("onnx", rewritten(float_onnx, tmp_path, change), job, evaluation)
    assert verdict.verdict == "failed"
    assert re.search(reason, "; ".join(verdict.reasons))


def test_int8_from_bad_ranges(
    job: ExportJob, float_onnx: Path, evaluation: Reference, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Where the check of the samples is passed by, the gate still sees the result."""
    monkeypatch.setattr(onnx_int8, "check_calibration", lambda *_: "unchecked")
    zeros = {"images": np.zeros((200, 1, 8, 8), np.uint8)}
    path = tmp_path / onnx_int8.FILE
    onnx_int8.export(replace(job, float_onnx=float_onnx, calibration=zeros), path)
    verdict = gate("onnx-int8", path, job, evaluation)
    assert verdict.verdict == "failed"


def test_an_fp32_file_called_int8(job: ExportJob, float_onnx: Path, evaluation: Reference) -> None:
    verdict = gate("onnx-int8", float_onnx, job, evaluation)
    assert verdict == Verdict("failed", ["no operator is quantized"])


def test_a_file_changed_after_it_was_written(
    job: ExportJob, float_onnx: Path, evaluation: Reference, tmp_path: Path
) -> None:
    path = rewritten(float_onnx, tmp_path, lambda model: None)
    files = describe_files(tmp_path, path.name)
    path.write_bytes(path.read_bytes()[:-1])
    evidence = prove("onnx", tmp_path, files, job.description["input_spec"], *evaluation, TASK)
    assert judge(evidence, Limits()).reasons == [
        "model.onnx: SHA-256 differs from when it was written"
    ]


def test_a_file_that_does_not_load(job: ExportJob, evaluation: Reference, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    verdict = gate("onnx", tmp_path / "model.onnx", job, evaluation)
    assert verdict.verdict == "failed"
    assert verdict.reasons[0].startswith("does not load: ")


def test_without_samples_nothing_is_called_passed(job: ExportJob, float_onnx: Path) -> None:
    files = describe_files(float_onnx.parent, float_onnx.name)
    spec = job.description["input_spec"]
    evidence = prove("onnx", float_onnx.parent, files, spec, None, "", TASK)
    assert judge(evidence, Limits()).verdict == "unverified"


def test_scores_on_the_test_split(
    job: ExportJob, float_onnx: Path, run: Path, tmp_path: Path
) -> None:
    """Of real and of worse files; what cannot be run there has none."""
    (tmp_path / "worse").mkdir()
    worse = rewritten(float_onnx, tmp_path / "worse", one_class)
    broken = rewritten(float_onnx, tmp_path, fixed_axis)
    paths = {"onnx": float_onnx, "onnx-int8": worse, "onnx-int8-qat": broken}
    samples = run / "samples" / "test.npz"
    spec = job.description["input_spec"]
    scores = score_test(small_run.loader(run), paths, spec, samples, TASK)

    with np.load(samples) as file:
        images, targets = file["images"], file["targets"]
    expected = job.module(torch.from_numpy(images)).argmax(1).numpy() == targets
    assert scores["eager"]["accuracy"] == pytest.approx(100 * expected.mean())
    assert scores["onnx"] == scores["eager"]
    assert scores["onnx"]["accuracy_difference"] == 0
    assert scores["onnx"]["whole"] is True
    right = onnx_float.load(worse, ["images"], 1)({"images": images}).argmax(1) == targets
    found = scores["onnx-int8"]
    assert found["accuracy"] == pytest.approx(100 * right.mean())
    assert found["accuracy_difference"] == pytest.approx(100 * (right.mean() - expected.mean()))
    assert found["paired"]["lost"] == int((expected & ~right).sum()) > 0
    assert found["paired"]["samples"] == 90
    assert "onnx-int8-qat" not in scores


TEXT = {
    "inputs": [
        {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]},
        {"name": "lengths", "dtype": "int64", "shape": ["batch"]},
    ],
    "dynamic": {"batch": [1, 1024], "length": [1, 60]},
}


class TinyLSTM(nn.Module):
    """The last state of an LSTM, of packed sequences or of the padded batch."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.packed = packed
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.packed:
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        return self.head(self.lstm(x)[1][0][0])


def text_samples(count: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 31, count)
    tokens = generator.integers(1, 20, (count, 30))
    tokens[np.arange(30) >= lengths[:, None]] = 0
    return {"tokens": tokens, "lengths": lengths}


def test_the_sweep_covers_batches_lengths_and_padding() -> None:
    spec = ExportSpec.from_json(TEXT)
    runner = tensor_runner(TinyLSTM(packed=True).eval(), spec.names)
    cases = {name: inputs for name, inputs, _ in sweep(spec, text_samples(40), runner)}
    sizes = [1, 2, 3, 7, 8, 32]
    assert [len(cases[f"batch {n}"]["tokens"]) for n in sizes] == sizes
    lengths = {n: cases[f"length {n}"]["tokens"].shape[1] for n in (1, 5, 17, 60)}
    assert lengths == {1: 1, 5: 5, 17: 17, 60: 60}
    assert all(case["lengths"].max() <= case["tokens"].shape[1] for case in cases.values())
    assert all(case["lengths"].min() >= 1 for case in cases.values())


def test_an_lstm_that_reads_the_padding(tmp_path: Path) -> None:
    """The reference ignores padding; the file made from the padded batch does not."""
    torch.manual_seed(0)
    right, wrong = TinyLSTM(packed=True).eval(), TinyLSTM(packed=False).eval()
    wrong.load_state_dict(right.state_dict())
    spec = ExportSpec.from_json(TEXT)
    inputs = text_samples(40)
    runner = tensor_runner(right, spec.names)
    cases = [Case(*case) for case in sweep(spec, inputs, runner)]
    logits = runner(inputs)
    evaluation = Evaluation(inputs, logits.argmax(1), logits, cases)
    for module, verdict in ((right, "passed"), (wrong, "failed")):
        evidence = Evidence("fp32")
        compare(tensor_runner(module, spec.names), evaluation, TASK, evidence)
        assert judge(evidence, Limits()).verdict == verdict
