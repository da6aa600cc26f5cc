"""A wrong backward is found and named; kinks, odd inputs and dropout raise no alarm."""

import copy
import random
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from callbacks.finite_differences import check_gradients, disagreement
from lightning_modules.deployed import DeployedImages, passing_on
from lightning_modules.losses import SampleLoss

CPU = torch.device("cpu")
CROSS_ENTROPY = nn.CrossEntropyLoss(reduction="none")


class Computes(nn.Module):
    """The least that has a loss."""

    def __init__(self, model: nn.Module, criterion: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion

    def compute_loss(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        inputs, targets = batch
        logits = self.model(*inputs) if isinstance(inputs, tuple) else self.model(inputs)
        return self.criterion(logits, targets), {}


def check_model(
    model: nn.Module, batch: Any, device: torch.device, criterion: nn.Module = CROSS_ENTROPY
) -> list[str]:
    return check_gradients(Computes(model, criterion), batch, device)


class Scale(torch.autograd.Function):
    """Identity whose gradient is `factor` times the right one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return gradient * ctx.factor, None


class Net(nn.Module):
    """20-16-16-4 with a faulty operation after the first layer, unless its factor is 1."""

    def __init__(self, factor: float = 1.0, activation: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.first = nn.Linear(20, 16)
        self.second = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)
        self.activation = activation()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        x = Scale.apply(self.activation(self.first(x)), self.factor)
        return self.head(self.activation(self.second(x)))


def batch(num_samples: int = 8) -> tuple[Tensor, Tensor]:
    return torch.randn(num_samples, 20), torch.arange(num_samples) % 4


def images(seed: int = 0, num_samples: int = 8) -> tuple[Tensor, Tensor]:
    """Mostly background, as digits are: many exactly equal windows."""
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.zeros(num_samples, 1, 12, 12, dtype=torch.uint8)
    pictures[:, :, 3:8, 4:9] = torch.randint(
        0, 255, (num_samples, 1, 5, 5), generator=generator, dtype=torch.uint8
    )
    return pictures, torch.arange(num_samples) % 3


def convolutional(seed: int, activation: nn.Module | None = None) -> nn.Module:
    """Two stages of convolution, BatchNorm, ReLU and pooling on uint8 pixels."""
    torch.manual_seed(seed)
    stages = [
        layer
        for channels, act in ((1, nn.ReLU()), (4, activation or nn.ReLU()))
        for layer in (nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4), act, nn.MaxPool2d(2))
    ]
    head = (nn.Flatten(), nn.Dropout(), nn.Linear(36, 3))
    return DeployedImages(nn.Sequential(*stages, *head), [0.2], [0.3])


@pytest.mark.parametrize("factor", [2.0, 0.5, -1.0, 0.0, 1.1])
def test_wrong_factor_is_an_error_that_names_the_parameters_before_it(factor: float) -> None:
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="the backward pass is wrong") as caught:
        check_model(Net(factor), batch(), CPU)
    message = str(caught.value)
    assert "first.weight" in message
    assert "first.bias" in message
    assert "second" not in message
    assert "head" not in message
    assert "--gradient_check.before_fit false" in message


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.Hardswish, nn.GELU, nn.Sigmoid])
@pytest.mark.parametrize("seed", range(20))
def test_right_backward_raises_no_alarm(seed: int, activation: type[nn.Module]) -> None:
    torch.manual_seed(seed)
    model = Net(activation=activation)
    for bias in (model.first.bias, model.second.bias):
        nn.init.zeros_(bias)
    inputs, targets = batch()
    inputs[:4] = 0  # with a zero bias these sit exactly on the kink
    assert check_model(model, (inputs, targets), CPU) == []


@pytest.mark.parametrize("seed", range(20))
def test_maxpool_relu_batchnorm_on_flat_pixels_raise_no_alarm(seed: int) -> None:
    assert check_model(convolutional(seed), images(seed), CPU) == []


@pytest.mark.parametrize("seed", range(5))
def test_wrong_backward_behind_maxpool_is_found(seed: int) -> None:
    model = convolutional(seed, FaultyReLU())
    with pytest.raises(ValueError, match=r"0\.weight .*4\.weight") as caught:
        check_model(model, images(seed), CPU)
    assert "network.10" not in str(caught.value)


class FaultyReLU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Scale.apply(x.relu(), 1.5)


def test_slopes_that_differ_on_both_sides_of_a_kink_are_no_contradiction() -> None:
    here = torch.zeros(1, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    assert disagreement([here], [one], lambda: here.relu().sum(), 0.0, 0.0, 0.01) is None
    found = disagreement([here], [one], lambda: here.sum(), 0.0, 2.0, 0.01)
    assert found == pytest.approx(1.0)


def test_fault_is_found_where_everything_starts_exactly_on_a_kink() -> None:
    torch.manual_seed(0)
    model = Net(2.0)
    nn.init.zeros_(model.first.weight)
    nn.init.zeros_(model.first.bias)
    with pytest.raises(ValueError, match=r"first\.bias"):
        check_model(model, batch(), CPU)


class Recurrent(nn.Module):
    """Tokens, lengths -> logits; LSTM with dropout between its layers."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor
        self.embedding = nn.Embedding(10, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, 5, num_layers=2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        states, _ = self.lstm(Scale.apply(self.embedding(tokens), self.factor))
        return self.head(states[torch.arange(len(tokens)), lengths - 1])


def test_text_with_recurrent_layers_raises_no_alarm_but_for_a_fault() -> None:
    torch.manual_seed(0)
    tokens, lengths = torch.randint(1, 10, (8, 7)), torch.arange(8) % 7 + 1
    texts = ((tokens, lengths), torch.arange(8) % 3)
    assert check_model(passing_on(Recurrent(), ["tokens", "lengths"]), texts, CPU) == []
    with pytest.raises(ValueError, match=r"embedding\.weight"):
        check_model(passing_on(Recurrent(2.0), ["tokens", "lengths"]), texts, CPU)


def test_one_sample_is_enough_for_batchnorm() -> None:
    model = nn.Sequential(nn.Linear(20, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4))
    assert check_model(model, batch(1), CPU) == []


def test_more_parameters_than_directions_still_finds_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("callbacks.finite_differences.MAX_DIRECTIONS", 2)
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"first\.weight … second\.weight"):
        check_model(Net(2.0), batch(), CPU)


def test_parameters_without_a_gradient_are_named_and_frozen_ones_are_not() -> None:
    model = Net()
    model.unused = nn.Linear(3, 3)
    model.second.requires_grad_(False)
    lines = check_model(model, batch(), CPU)
    assert lines == [
        "no gradient reaches unused.weight, unused.bias: unused or detached in the forward pass"
    ]


def test_model_that_cannot_run_in_float64_is_not_an_error() -> None:
    class Single(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.float())

    (line,) = check_model(Single(), batch(), CPU)
    assert line.startswith("finite differences skipped, no float64 in this model: ")
    assert "\n" not in line


def test_float32_inside_a_float64_copy_raises_no_alarm_but_for_a_fault() -> None:
    class Island(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).float().double()

    torch.manual_seed(0)
    assert check_model(Island(), batch(), CPU) == []
    with pytest.raises(ValueError, match=r"first\.weight"):
        check_model(Island(2.0), batch(), CPU)


def test_a_module_that_cannot_be_copied_is_not_an_error() -> None:
    model = Net()
    model.lock = threading.Lock()
    (line,) = check_model(model, batch(), CPU)
    assert line.startswith("finite differences skipped, the module cannot be copied: cannot pickle")


def test_nothing_is_left_changed() -> None:
    model = convolutional(0).train()
    model.network[1].eval()
    state = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    before = (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist())
    check_model(model, images(), CPU)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())
    after = (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist())
    assert after == before


def test_a_loss_that_is_not_finite_is_one_clear_error() -> None:
    class Broken(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * torch.tensor([1.0, 1.0, torch.nan, 1.0])[:, None]

    with pytest.raises(ValueError, match="the loss of row 2 of the example batch is not finite"):
        check_model(Broken(), batch(4), CPU)


def test_the_loss_that_trains_is_the_one_that_is_checked() -> None:
    class WrongLoss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            return logits.square().sum(1)

        @staticmethod
        def backward(ctx, gradient):
            return gradient[:, None].expand(-1, 4)

    wrong = SampleLoss("wrong", lambda logits, targets: WrongLoss.apply(logits))
    assert check_model(Net(), batch(), CPU) == []
    with pytest.raises(ValueError, match="the backward pass is wrong"):
        check_model(Net(), batch(), CPU, criterion=wrong)


def test_a_loss_that_rounds_to_float32_is_not_compared() -> None:
    rounds = SampleLoss("rounds", lambda logits, targets: logits.float().square().sum(1))
    (line,) = check_model(Net(), batch(), CPU, criterion=rounds)
    assert line == "finite differences skipped, the loss does not stay in float64"
