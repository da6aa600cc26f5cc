"""Recomputing changes memory, never the mathematics."""

import copy

import pytest
import torch
from torch import nn

from lightning_modules.activation_checkpointing import checkpoint_activations
from lightning_modules.networks.small_cnn import SmallCNN


@pytest.fixture
def network() -> SmallCNN:
    torch.manual_seed(0)
    return SmallCNN(1, (8, 8), 3, width=4, hidden_features=8)


def train_steps(network: nn.Module) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    images = torch.randn(6, 1, 8, 8)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        network(images).square().mean().backward()
        optimizer.step()
    return network.state_dict()


def test_weights_and_batch_statistics_are_identical(network: SmallCNN) -> None:
    plain = train_steps(copy.deepcopy(network))
    assert checkpoint_activations(network) == 2
    recomputed = train_steps(network)
    assert plain.keys() == recomputed.keys()
    for name, value in plain.items():
        assert torch.equal(value, recomputed[name]), name


def test_activations_are_not_kept(network: SmallCNN) -> None:
    def saved_bytes(module: nn.Module) -> int:
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: sizes.append(tensor.nbytes) or tensor, lambda tensor: tensor
        ):
            module(torch.randn(64, 1, 8, 8))
        return sum(sizes)

    before = saved_bytes(network)
    checkpoint_activations(network)
    assert saved_bytes(network) < before / 2


def test_a_copy_recomputes_with_its_own_weights(network: SmallCNN) -> None:
    checkpoint_activations(network)
    twin = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert not twin(torch.randn(2, 1, 8, 8)).any()
    assert network(torch.randn(2, 1, 8, 8)).any()


def test_items_of_a_list_are_blocks() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    layers = nn.ModuleList([layer, copy.deepcopy(layer), copy.deepcopy(layer)])
    network = nn.Sequential(nn.Sequential(layers, nn.Linear(8, 2)))
    assert checkpoint_activations(network) == 3
