"""The FP32 ONNX file: what it says about itself, and what is refused when read back."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from exporters import onnx_float
from exporters.bundle import describe_files
from exporters.candidate import ExportJob
from exporters.verify import prove
from tasks.base import build_task


def test_the_file_says_what_it_is(float_onnx: Path, job: ExportJob) -> None:
    facts = onnx_float.read_back(float_onnx, job.spec)
    assert facts["opset"] == 20
    assert facts["inputs"] == ["images uint8 [batch,1,8,8]"]
    metadata = {entry.key: entry.value for entry in onnx.load(float_onnx).metadata_props}
    assert json.loads(metadata["class_names"]) == ["row", "column", "corner"]
    assert json.loads(metadata["preprocessing"])["resize"] == "exact"
    assert json.loads(metadata["axis_bounds"]) == {"batch": [1, 1024]}
    assert [path.name for path in float_onnx.parent.iterdir()] == ["model.onnx"]


def test_no_path_of_this_machine_is_inside(float_onnx: Path) -> None:
    content = float_onnx.read_bytes()
    assert b"site-packages" not in content
    assert str(Path(__file__).parents[2]).encode() not in content


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_the_answers_are_the_modules(float_onnx: Path, job: ExportJob, batch: int) -> None:
    images = job.calibration["images"][:batch]
    expected = job.module(torch.from_numpy(images)).detach().numpy()
    found = onnx_float.load(float_onnx, ["images"], 1)({"images": images})
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("opset", "problems"), [
    (20, []), (18, ["opset 18 was asked for, the file has 20"]),
])  # fmt: skip
def test_an_opset_that_was_not_asked_for_is_refused(
    float_onnx: Path, job: ExportJob, opset: int, problems: list[str]
) -> None:
    files = describe_files(float_onnx.parent, float_onnx.name)
    spec, task = job.description["input_spec"], build_task(job.description)
    evidence = prove("onnx", float_onnx.parent, files, spec, None, "", task, opset)
    assert evidence.problems == problems


def test_a_fixed_batch_is_refused(job: ExportJob, tmp_path: Path) -> None:
    """What Lightning's own to_onnx writes by default."""
    path = tmp_path / "model.onnx"
    program = torch.onnx.export(
        job.module, job.example, dynamo=True, input_names=["images"], verbose=False
    )
    program.save(str(path))
    with pytest.raises(ValueError, match=r"inputs are images uint8 \[2,1,8,8\], expected"):
        onnx_float.read_back(path, job.spec)


def test_a_large_model_keeps_its_weights_beside_it(job: ExportJob, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with torch.no_grad():
        onnx_float.export(job, path, max_bytes=100)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    onnx_float.read_back(path, job.spec)
    images = job.calibration["images"][:3]
    expected = job.module(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(
        onnx_float.load(path, ["images"], 1)({"images": images}), expected, atol=1e-5
    )


def test_the_innermost_cause_is_what_is_said() -> None:
    def fail() -> None:
        try:
            raise RuntimeError("no such axis\nand more")
        except RuntimeError as error:
            raise torch.onnx.OnnxExporterError("many lines\nof advice") from error

    said = "^torch.onnx cannot translate it: RuntimeError: no such axis$"
    with pytest.raises(ValueError, match=said), onnx_float.one_cause():
        fail()
    with pytest.raises(torch.onnx.OnnxExporterError), onnx_float.one_cause():
        raise torch.onnx.OnnxExporterError("of its own")
