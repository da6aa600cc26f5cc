"""torch.export: exact at every length, and nothing of the machine or the samples in the file."""

import zipfile
from pathlib import Path

import pytest
import torch

from exporters import pt2
from exporters.candidate import ExportJob
from exporters.process import run_child
from tests.exporters.other_networks import bench


@pytest.mark.slow
def test_the_bilstm_is_right_at_every_batch_and_length(tmp_path: Path) -> None:
    from lightning_modules.networks.bilstm import BiLSTM

    made = bench(BiLSTM(20, 3, 8, 8, num_layers=2), tmp_path)
    path = tmp_path / "files" / pt2.FILE
    path.parent.mkdir()
    run_child(pt2.export, made.job, path, timeout=120, log=tmp_path / "log")
    verdict = made.judge("pt2", path)
    assert (verdict.verdict, verdict.reasons) == ("passed", [])


def test_no_path_and_no_sample_is_inside(job: ExportJob, tmp_path: Path) -> None:
    path = tmp_path / pt2.FILE
    pt2.export(job, path)
    with zipfile.ZipFile(path) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert str(Path(pt2.__file__).parents[1]).encode() not in content
    assert b"site-packages" not in content
    assert job.example[0].numpy().tobytes() not in content


def test_a_fixed_axis_or_another_name_is_refused(job: ExportJob, tmp_path: Path) -> None:
    path = tmp_path / pt2.FILE
    torch.export.save(torch.export.export(job.module, job.example), path)
    with pytest.raises(ValueError, match="axis 'batch' of images is fixed at 2"):
        pt2.read_back(path, job.spec)
