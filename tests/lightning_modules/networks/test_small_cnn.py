import pytest
import torch

from lightning_modules.networks.small_cnn import SmallCNN


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [(4, 4), (5, 7), (28, 28), (33, 65)])
def test_any_size_and_channel_count(channels, size):
    network = SmallCNN(channels, size, num_classes=6).eval()
    assert network(torch.zeros(2, channels, *size)).shape == (2, 6)


@pytest.mark.parametrize("size", [(3, 28), (28, 3), (1, 1)])
def test_too_small_an_image_is_an_error_with_the_numbers(size):
    with pytest.raises(ValueError, match=f"at least 4x4 pixels; got {size[0]}x{size[1]}"):
        SmallCNN(1, size, 10)
    with pytest.raises(ValueError, match="halves its input 5 times .* 32x32 pixels; got 28x28"):
        SmallCNN(1, (28, 28), 10, stages=5)


@pytest.mark.parametrize("stages", [1, 3, 4])
def test_the_number_of_stages(stages):
    network = SmallCNN(1, (28, 28), 10, stages, width=4).eval()
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_sizes_of_nothing():
    with pytest.raises(ValueError, match="at least 1; got 2, 0 and 128"):
        SmallCNN(1, (28, 28), 10, width=0)


def test_every_parameter_gets_a_gradient():
    network = SmallCNN(1, (8, 8), 3)
    network(torch.randn(4, 1, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
