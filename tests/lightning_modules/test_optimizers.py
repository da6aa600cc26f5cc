"""Which parameters decay, what is fused, and what is refused."""

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from lightning_modules.deployed import DeployedImages
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


def test_complex_parameters_have_no_fused_kernel() -> None:
    net = nn.Linear(2, 2, dtype=torch.complex64)
    assert not can_fuse(net, "32-true", False)
    optimizer = build_optimizer(net, can_fuse(net, "32-true", False))
    net(torch.ones(1, 2, dtype=torch.complex64)).abs().sum().backward()
    optimizer.step()


# ---- rates of parts -----------------------------------------------------------------------


class Parts(nn.Sequential):
    def __init__(self, *groups: dict) -> None:
        super().__init__(nn.Linear(4, 3), nn.Linear(3, 2))
        self.groups = groups

    def parameter_groups(self) -> list[dict]:
        parts = (group | {"params": self.get_submodule(group["params"])} for group in self.groups)
        return [part | {"params": part["params"].parameters()} for part in parts]


def rates(optimizer: Optimizer, module: nn.Module) -> dict[str, tuple[float, float]]:
    """Rate and weight decay by name."""
    pairs = [(p, group) for group in optimizer.param_groups for p in group["params"]]
    found = {id(p): (group["lr"], group["weight_decay"]) for p, group in pairs}
    return {name: found[id(p)] for name, p in module.named_parameters()}


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_networks_own_groups_learn_at_their_own_rates(name: str) -> None:
    network = Parts({"params": "0", "lr_scale": 0.25}, {"params": "1", "weight_decay": 0.5})
    for module in (network, DeployedImages(network, [0.5], [0.5])):
        optimizer = build_optimizer(module, False, name, lr=0.4, weight_decay=0.3)
        assert rates(optimizer, network) == {
            "0.weight": (0.1, 0.3),
            "0.bias": (0.1, 0.0),
            "1.weight": (0.4, 0.5),
            "1.bias": (0.4, 0.5),
        }
        assert optimizer.param_groups[0]["lr"] == 0.4


def test_all_layers_but_the_last_may_learn_more_slowly(module: nn.Module) -> None:
    optimizer = build_optimizer(module, False, lr=0.5, backbone_lr_scale=0.5)
    found = {name: rate for name, (rate, _) in rates(optimizer, module).items()}
    slow = dict.fromkeys(("0.weight", "0.bias", "1.weight", "1.bias"), 0.25)
    assert found == slow | {"3.weight": 0.5, "3.bias": 0.5}
    assert len(build_optimizer(module, False).param_groups) == 2


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([{"params": "0"}], r"Parts.parameter_groups\(\) leaves out 1.weight, 1.bias; each"),
        ([{"params": ""}, {"params": "1"}], "has more than once 1.weight, 1.bias"),
        ([{"params": "", "lr_scale": 0.0}], r"has lr_scale \[0.0\]; each must be above 0"),
    ],
)
def test_groups_that_do_not_fit_are_refused(groups: list[dict], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_optimizer(Parts(*groups), False)
    with pytest.raises(ValueError, match="Parts has parameter_groups"):
        build_optimizer(Parts({"params": ""}), False, backbone_lr_scale=0.5)
