import pytest
import torch

from lightning_modules.networks.cifar_resnet import CIFARResNet


@pytest.mark.parametrize(
    ("depth", "parameters"), [(20, 0.27e6), (32, 0.46e6), (44, 0.66e6), (56, 0.85e6)]
)
def test_sizes_of_the_paper(depth, parameters):
    """Table 6 of He et al. 2015; projection shortcuts add a little."""
    found = sum(p.numel() for p in CIFARResNet(3, 10, depth).parameters())
    assert found == pytest.approx(parameters, rel=0.02)


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (28, 28), (32, 32), (64, 48)])
def test_any_image_size(size):
    network = CIFARResNet(1, 5, depth=8, width=4)
    assert network(torch.randn(3, 1, *size)).shape == (3, 5)


@pytest.mark.parametrize(("depth", "width"), [(18, 16), (2, 16), (20, 0)])
def test_impossible_depths(depth, width):
    with pytest.raises(ValueError, match=rf"6n \+ 2 .* got {depth} and {width}"):
        CIFARResNet(3, 10, depth, width)


def test_every_parameter_gets_a_gradient():
    network = CIFARResNet(3, 4, depth=8, width=4)
    network(torch.randn(4, 3, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
