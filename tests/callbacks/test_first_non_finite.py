"""The first bad value is named by layer, operation and sample."""

import pytest
import torch
from torch import Tensor, nn

from callbacks.first_non_finite import find_first_non_finite


class Net(nn.Module):
    """Three layers and one function between them."""

    def __init__(self, between: str) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.normalise = nn.BatchNorm1d(4)
        self.last = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        x = self.normalise(self.first(x))
        if self.between == "log":
            x = x.abs().where(x[:, :1] < 10, 0.0).log()
        if self.between == "sqrt":  # finite, but its slope at 0 is not
            x = (x * 0).sqrt()
        return self.last(x)


class Sums(nn.Module):
    """Its loss is the sum of what a network gives, times a factor."""

    def __init__(self, network: nn.Module, factor: float = 1.0) -> None:
        super().__init__()
        self.model = network
        self.factor = factor

    def compute_loss(self, inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return self.model(inputs).sum(dim=1) * self.factor, {}


def test_a_healthy_step_finds_nothing_and_changes_nothing() -> None:
    network = Net("").train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    inputs = torch.randn(8, 4)
    state = torch.get_rng_state()
    assert find_first_non_finite(Sums(network), inputs) is None
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())


def test_a_bad_sample_is_named() -> None:
    inputs = torch.randn(8, 4)
    inputs[5, 2] = torch.inf
    finding = find_first_non_finite(Sums(Net("").eval()), inputs)
    assert finding is not None
    assert (finding.phase, finding.layer, finding.rows) == ("forward", "first", (5,))
    assert finding.operation == "AddmmBackward0"


def test_an_operation_between_layers_shows_at_the_next_one() -> None:
    torch.manual_seed(0)
    network = Net("log").eval()
    network.first.weight.data.zero_()
    network.first.bias.data.zero_()
    finding = find_first_non_finite(Sums(network), torch.randn(8, 4))
    assert finding is not None
    assert finding.phase == "forward"
    assert finding.layer == "last.0"


def test_a_backward_that_is_not_finite() -> None:
    finding = find_first_non_finite(Sums(Net("sqrt").eval()), torch.randn(8, 4))
    assert finding is not None
    assert (finding.phase, finding.operation) == ("backward", "SqrtBackward0")
    assert str(finding).startswith("backward pass of last")


def test_a_broken_weight() -> None:
    network = Net("")
    network.last[1].bias.data[0] = torch.nan
    finding = find_first_non_finite(Sums(network), torch.randn(8, 4))
    assert str(finding) == "the weights last.1.bias are not finite before the step"


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_loss_that_breaks_by_itself(value: float) -> None:
    finding = find_first_non_finite(Sums(Net(""), value), torch.ones(8, 4))
    assert finding is not None
    assert (finding.phase, finding.operation) == ("loss", "MulBackward0")
    assert finding.rows == tuple(range(8))
