"""The probe: lines that no graph can hold are found before anything is made."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exporters import EXPORTERS
from exporters.candidate import format_module
from exporters.fit_check import check
from exporters.program import probe
from exporters.spec import ExportSpec
from tests.exporters.other_networks import (
    IMAGES,
    AttentionPooledLSTM,
    Branching,
    ReusedLayers,
    bench,
)
from tests.parts import needs

GRAPHS = [format_module(name) for name in ("pt2", "onnx", "onnx-int8", "aoti") if name in EXPORTERS]


class ChoosesByShape(nn.Module):
    """Python may decide on shapes, and read numbers that decide nothing."""

    def forward(self, images: Tensor) -> Tensor:
        x = images.float().mean(dim=(2, 3)).expand(-1, 3)
        return x if images.shape[1] == 1 else -x


def test_the_line_is_named_and_what_still_works(tmp_path: Path) -> None:
    description = bench(Branching(), tmp_path).job.description
    for module in GRAPHS:
        reason = module.unavailable(description)
        assert "other_networks.py:" in reason
        assert "if (x - 0.3).sum() > 0:" in reason
        assert "use torchscript" in reason


def test_what_is_fine_tuned_has_convolutions(tmp_path: Path) -> None:
    from exporters import onnx_int8_qat

    description = bench(Branching(), tmp_path).job.description
    assert onnx_int8_qat.unavailable(description).startswith("only convolution networks")


@pytest.mark.parametrize("network", [AttentionPooledLSTM, ReusedLayers])
def test_other_networks_have_all_formats(network: type[nn.Module], tmp_path: Path) -> None:
    description = bench(network(), tmp_path).job.description
    assert [module.unavailable(description) for module in GRAPHS] == [None] * len(GRAPHS)


def test_decisions_that_the_exporter_can_hold_are_none() -> None:
    spec = ExportSpec.from_json(IMAGES)
    _, found = probe(ChoosesByShape(), spec.example(), spec.dynamic_shapes())
    assert found["decisions"] == []
    assert "mean" in found["operators"]


@needs("pt2", "onnx", "onnx-int8")
def test_the_fit_says_so_before_it_starts() -> None:
    spec = ExportSpec.from_json(IMAGES)
    note = check(Branching(), spec)
    assert note is not None
    assert note.startswith("export: pt2, onnx, onnx-int8 will be unavailable: the network")
    assert check(ReusedLayers(), spec) is None


class OnlyInEager(nn.Module):
    """Decides by values, but not for an exporter."""

    def forward(self, images: Tensor) -> Tensor:
        x = images.float().mean(dim=(2, 3)).expand(-1, 3)
        if not torch.compiler.is_exporting() and x.isnan().any():
            raise ValueError("not finite")
        return x


def test_a_decision_that_is_left_out_of_the_graph_does_not_count() -> None:
    spec = ExportSpec.from_json(IMAGES)
    assert probe(OnlyInEager(), spec.example(), spec.dynamic_shapes())[1]["decisions"] == []
