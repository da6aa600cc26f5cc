"""Which parameters decay, what is fused, and what is refused."""

import pytest
import torch
from torch import nn

from lightning_modules.optimizers import build_optimizer, can_fuse


@pytest.fixture
def module() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_only_kernels_and_matrices_decay(module: nn.Module, name: str) -> None:
    optimizer = build_optimizer(module, False, name, lr=0.1, weight_decay=0.3)
    decay = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    assert {n: decay[id(p)] for n, p in module.named_parameters()} == {
        "0.weight": 0.3,
        "0.bias": 0.0,
        "1.weight": 0.0,
        "1.bias": 0.0,
        "3.weight": 0.3,
        "3.bias": 0.0,
    }


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_fused_takes_the_same_step(module: nn.Module, name: str) -> None:
    results = []
    for fused in (False, True):
        torch.manual_seed(0)
        net = nn.Linear(5, 3)
        optimizer = build_optimizer(net, fused, name, lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(2, 5)).square().sum().backward()
            optimizer.step()
        results.append(net.weight.detach().clone())
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize(
    ("precision", "clips", "expected"),
    [
        ("32-true", True, True),
        ("bf16-mixed", False, True),
        ("bf16-mixed", True, False),
        ("16-mixed", False, False),
        ("16-mixed", True, False),
    ],
)
def test_scaling_and_clipping_decide_about_fusing(
    module: nn.Module, precision: str, clips: bool, expected: bool
) -> None:
    assert can_fuse(module, precision, clips) is expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1.0}, "--optimizer.lr must be above 0 or auto, got -1.0"),
        ({"lr": float("nan")}, "--optimizer.lr must be above 0"),
        ({"momentum": 1.0}, "momentum and beta2 in \\[0, 1\\)"),
    ],
)
def test_bad_values_are_refused(module: nn.Module, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_optimizer(module, False, **arguments)
