"""One trained run, its reference, its ONNX file and its whole bundle for all tests here."""

from pathlib import Path

import pytest
import torch

from exporters import onnx_float
from exporters.candidate import ExportJob
from exporters.evaluation import write_reference
from tests.exporters import small_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def job(run: Path) -> ExportJob:
    return small_run.make_job(run)


@pytest.fixture(scope="session")
def evaluation(run: Path) -> tuple[Path, str]:
    path = run / "samples" / "evaluation.npz"
    return path, write_reference(small_run.loader(run), run / "samples", path)[1]["sha256"]


@pytest.fixture(scope="session")
def float_onnx(job: ExportJob, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / onnx_float.FILE
    with torch.no_grad():
        onnx_float.export(job, path)
    return path
