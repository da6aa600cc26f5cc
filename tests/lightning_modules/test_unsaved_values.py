"""What a network draws by chance and does not save is found before training."""

import random
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_modules.deployed import deploy
from lightning_modules.unsaved_values import check_everything_is_saved

NORMALISATION = {"mean": [0.0], "std": [1.0]}


class Net(nn.Module):
    """Holds a value in one of the ways that there are."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        fixed = torch.Generator().manual_seed(0)
        if way == "random buffer":
            self.register_buffer("noise", torch.randn(3), persistent=False)
        elif way == "inner buffer":
            self.layer.register_buffer("mask", torch.rand(40) > 0.5, persistent=False)
            self.layer.register_buffer("order", torch.randperm(50), persistent=False)
        elif way == "attribute":
            self.noise = torch.randn(3)
        elif way == "array":
            self.noise = np.random.rand(3)  # type: ignore[assignment]
        elif way == "list":
            self.parts = [torch.full((2,), random.random()) for _ in range(2)]
        elif way == "initialised later":
            self.register_buffer("noise", torch.empty(3), persistent=False)
            nn.init.normal_(self.noise)  # type: ignore[arg-type]
        elif way == "scratch":
            self.register_buffer("scratch", torch.randn(3), persistent=False)
        elif way == "persistent":
            self.register_buffer("noise", torch.randn(3))
        elif way == "fixed":
            self.register_buffer("noise", torch.randn(3, generator=fixed), persistent=False)
        elif way == "computed":
            self.register_buffer("places", torch.arange(3), persistent=False)
            self.register_buffer("gap", torch.full((2,), torch.nan), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        tensors = [*dict(self.named_buffers()).values(), *getattr(self, "parts", [])]
        tensors += [torch.as_tensor(self.noise)] if hasattr(self, "noise") else []
        used = [] if hasattr(self, "scratch") else tensors
        return self.layer(x.flatten(1)) + sum(float(value[0]) for value in used)


def check(way: str, model: nn.Module | None = None) -> None:
    name = "tests.lightning_modules.test_unsaved_values.Net"
    description = {
        "network": {"name": name, "arguments": {"way": way}},
        "input_spec": {},
        "normalisation": NORMALISATION,
    }
    model = model or deploy(Net(way), NORMALISATION, {})
    batch = (torch.full((2, 1, 1, 2), 9, dtype=torch.uint8), torch.zeros(2))
    check_everything_is_saved(model, description, lambda: batch, True)


@pytest.mark.parametrize(
    ("way", "names"),
    [
        ("random buffer", "noise"),
        ("inner buffer", "layer.mask, layer.order"),
        ("attribute", "noise"),
        ("array", "noise"),
        ("list", r"parts\[0\], parts\[1\]"),
        ("initialised later", "noise"),
        ("persistent", None),
        ("fixed", None),
        ("computed", None),
        ("scratch", None),
        ("none", None),
    ],
)
def test_what_is_named(way: str, names: str | None) -> None:
    torch.manual_seed(3)
    if names is None:
        check(way)
        return
    with pytest.raises(ValueError, match=rf"Net draws {names} by chance"):
        check(way)


def test_later_draws_are_the_same_as_without_it() -> None:
    drawn = []
    for checks in (False, True):
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        model = deploy(Net("computed"), NORMALISATION, {})
        if checks:
            check("computed", model)
            assert model.network.layer.training  # type: ignore[union-attr]
        drawn.append((torch.rand(1).item(), random.random(), np.random.rand()))
    assert drawn[0] == drawn[1]


def test_what_saves_everything_is_not_loaded_again() -> None:
    model = deploy(Net("persistent"), NORMALISATION, {})
    check_everything_is_saved(model, {}, lambda: pytest.fail("a batch was made"))


class Remembers(Net):
    """Keeps a value in its checkpoint by itself."""

    def __init__(self, extra: object) -> None:
        super().__init__("none")
        self.extra = extra

    def get_extra_state(self) -> object:
        return self.extra

    def set_extra_state(self, state: object) -> None:
        self.extra = state


@pytest.mark.parametrize("extra", [{"seen": [1, 2.5, "a"]}, None, 3])
def test_plain_values_may_be_kept(extra: object) -> None:
    check("none", deploy(Remembers(extra), NORMALISATION, {}))


@pytest.mark.parametrize("extra", [date(2020, 1, 1), {"f": lambda: 0}, [Net], Path("a")])
def test_what_no_checkpoint_could_give_back_is_named(extra: object) -> None:
    text = rf"keeps a {type(extra).__name__} in its state \(network\._extra_state, from get_extra"
    with pytest.raises(ValueError, match=text):
        check("none", deploy(Remembers(extra), NORMALISATION, {}))
