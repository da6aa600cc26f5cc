"""TorchScript: traced where that is right, scripted where the network branches on its input."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from exporters import torchscript
from exporters.candidate import ExportJob


class Branches(nn.Module):
    """A data-dependent branch, as a trace would freeze it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 3)

    def forward(self, images: Tensor) -> Tensor:
        x = images.float().flatten(1) / 255
        if bool(x.mean() > 0.5):
            x = -x
        return self.layer(x)


def test_a_plain_network_is_traced(job: ExportJob, tmp_path: Path) -> None:
    path = tmp_path / torchscript.FILE
    details = torchscript.export(job, path)
    assert details["notes"] == ["traced; legacy, PyTorch has deprecated this format"]
    assert torchscript.read_back(path, job.spec) == {"inputs": ["images"]}
    images = job.calibration["images"][:5]
    expected = job.module(torch.from_numpy(images)).detach().numpy()
    found = torchscript.load(path, ["images"], 1)({"images": images})
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_branch_is_kept_by_scripting() -> None:
    module = Branches().eval()
    dark, bright = (torch.full((2, 1, 8, 8), level, dtype=torch.uint8) for level in (0, 255))
    with warnings.catch_warnings():
        torchscript.ignore_deprecation()
        script, how = torchscript.to_script(module, (dark,))
    assert how.startswith("scripted")
    torch.testing.assert_close(script(bright), module(bright))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, (dark,), check_trace=False)
    assert not torch.allclose(traced(bright), module(bright))  # what the scripting is for


@pytest.mark.parametrize(("version", "known"), [((3, 13), True), ((3, 14), False)])
def test_it_is_said_to_be_absent_on_python_3_14(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], known: bool
) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0))
    reason = torchscript.unavailable({})
    assert (reason is None) is known
    assert known or "Python 3.14" in reason
