"""The classifier of regions: what a box holds decides, in every precision and compiled."""

import pytest
import torch
from torch import Tensor

from lightning_modules.networks.roi_classifier import ROIClassifier

pytestmark = pytest.mark.slow  # the first one compiles the operator


@pytest.fixture
def network() -> ROIClassifier:
    torch.manual_seed(0)
    return ROIClassifier(1, 10, width=4).eval()


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    corner = torch.rand(300, 2, generator=generator) * 20
    boxes = torch.cat([corner, corner + 4 + 8 * torch.rand(300, 2, generator=generator)], dim=1)
    return torch.randn(300, 1, 32, 32, generator=generator), boxes


def test_what_lies_far_from_the_box_does_not_count(network: ROIClassifier) -> None:
    images, boxes = torch.zeros(1, 1, 32, 32), torch.tensor([[2.0, 2, 10, 10]])
    expected = network(images, boxes)
    images[:, :, 20:, 20:] = 5
    assert torch.equal(network(images, boxes), expected)
    images[:, :, 4:8, 4:8] = 5
    assert not torch.equal(network(images, boxes), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_each_box_meets_its_own_image_in_every_precision(
    network: ROIClassifier, inputs: tuple[Tensor, Tensor], dtype: torch.dtype
) -> None:
    with torch.no_grad():
        expected = network(*inputs)
        found = network.to(dtype)(*(x.to(dtype) for x in inputs))
    assert found.dtype == dtype
    tolerance = 0.02 if dtype == torch.bfloat16 else 5e-3
    torch.testing.assert_close(found.float(), expected, atol=tolerance, rtol=0)


def test_it_compiles_whole(network: ROIClassifier, inputs: tuple[Tensor, Tensor]) -> None:
    compiled = torch.compile(network, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), network(*inputs))
        few = [x[:3] for x in inputs]
        torch.testing.assert_close(compiled(*few), network(*few))
