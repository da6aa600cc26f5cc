"""A network that does not fit is refused with one message, before anything is trained."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import Tensor, nn

from lightning_modules.classifier import Classifier
from lightning_modules.deployed import DeployedImages, passing_on
from lightning_modules.first_batch import check_first_batch
from lightning_modules.losses import SampleLoss

CPU = SingleDeviceStrategy(torch.device("cpu"))
IMAGES = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.arange(4) % 3


class Answers(nn.Module):
    """[N,1,2,2] -> whatever a function makes of logits [N,3]."""

    def __init__(self, change: Callable[[Tensor, bool], Any]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 3))
        self.change = change

    def forward(self, images: Tensor) -> Any:
        return self.change(self.layers(images), self.training)


def module_of(network: nn.Module, *names: str) -> Any:
    deployed = passing_on(network, names) if names else DeployedImages(network, [0.5], [0.5])
    description = {"network": {"name": "mine.Net"}, "class_names": ["a", "b", "c"]}
    criterion = SampleLoss("mine.loss", nn.CrossEntropyLoss(reduction="none"))
    return Classifier(deployed, criterion, description, {}, {})


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([0, 1, 3, -1]), r"label 3 in row 2 lies outside 0\.\.2 \(2 such rows\)"),
        (torch.zeros(4), r"targets are float32 \[4\], expected integers \[4\]"),
        (torch.zeros(4, 1).long(), r"targets are int64 \[4, 1\], expected integers \[4\]"),
    ],
)
def test_a_target_that_is_none_of_the_task(targets: Tensor, message: str) -> None:
    module = module_of(Answers(lambda x, _: x))
    with pytest.raises(ValueError, match=rf"example_batch\(\): {message}"):
        check_first_batch(module, (IMAGES[0], targets), CPU)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, _: (x, x), "with a tuple of float32 [4, 3], float32 [4, 3] to float32 [4, 1,"),
        (lambda x, _: {"logits": x}, "with a dict of logits: float32 [4, 3] to"),
        (lambda x, _: x[:, :2], "with float32 [4, 2] to"),
        (lambda x, _: x[:1], "with float32 [1, 3] to"),
        (lambda x, _: x.argmax(1), "with int64 [4] to"),
        (lambda x, _: x.long(), "with int64 [4, 3] to"),
        (lambda x, _: x.tolist(), "with a list of a list of float"),
        (lambda x, _: None, "with NoneType to"),
        (lambda x, training: (x, x) if training else x, "answers in training with a tuple"),
        (lambda x, training: x if training else [x], "answers in evaluation with a list"),
    ],
)
def test_an_answer_that_is_no_logits(change: Any, message: str) -> None:
    text = r"network mine\.Net answers .*expected logits \[N,K\], one .* tensor \[4, 3\]"
    with pytest.raises(ValueError, match=text) as caught:
        check_first_batch(module_of(Answers(change)), IMAGES, CPU)
    assert message in str(caught.value)


def test_what_torch_refuses_is_one_message_with_its_place() -> None:
    wrong = nn.Sequential(nn.Flatten(), nn.Linear(5, 3))
    with pytest.raises(ValueError, match="mat1 and mat2 shapes") as caught:
        check_first_batch(module_of(wrong), IMAGES, CPU)
    assert "network mine.Net cannot take its first batch, float32 [4, 1, 2, 2]: " in str(
        caught.value
    )
    in_own_line = Answers(lambda x, _: x.view(7))
    with pytest.raises(ValueError, match=r"\(test_first_batch\.py, line \d+: .*x\.view\(7\)"):
        check_first_batch(module_of(in_own_line), IMAGES, CPU)


def test_a_network_for_other_inputs() -> None:
    texts = (torch.zeros(4, 6, dtype=torch.int64), torch.full((4,), 6)), IMAGES[1]
    text = r"^network mine\.Net takes images, but this data gives tokens, lengths: choose another"
    with pytest.raises(ValueError, match=text):
        check_first_batch(module_of(Answers(lambda x, _: x), "tokens", "lengths"), texts, CPU)


def test_a_fault_in_own_code_keeps_its_trace() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        check_first_batch(module_of(Answers(lambda x, _: x * (1 // 0))), IMAGES, CPU)
    assert re.search(r"mine\.Net cannot take its first batch, float32", caught.value.__notes__[0])


def test_a_loss_is_tried_too() -> None:
    module = module_of(Answers(lambda x, _: x))
    for function, message in (
        (lambda x, y: x.mean(), r"loss own gives \[\] for logits \[4, 3\] and targets \[4\]"),
        (lambda x, y: x.argmax(1).float(), "loss own has no gradient"),
        (
            lambda x, y: nn.functional.nll_loss(x, y[None], reduction="none"),
            r"own cannot take its first batch, logits float32 \[4, 3\] and targets int64 \[4\]",
        ),
    ):
        module.criterion = SampleLoss("own", function)
        with pytest.raises(ValueError, match=message):
            check_first_batch(module, IMAGES, CPU)
    module.criterion = SampleLoss("own", lambda x, y: x[:, 0] / "a")
    with pytest.raises(TypeError):  # a fault in own code keeps its trace
        check_first_batch(module, IMAGES, CPU)


def test_nothing_changes() -> None:
    module = module_of(Answers(lambda x, _: x + torch.rand(1)))
    module.model.network.layers.eval()
    before = {name: value.clone() for name, value in module.model.state_dict().items()}
    modes = [part.training for part in module.model.modules()]
    state = torch.get_rng_state()
    check_first_batch(module, IMAGES, CPU)
    assert torch.equal(torch.get_rng_state(), state)
    assert modes == [part.training for part in module.model.modules()]
    for name, value in module.model.state_dict().items():
        assert torch.equal(value, before[name])
    check_first_batch(module, (IMAGES[0][:1], IMAGES[1][:1]), CPU)  # too few for BatchNorm


def test_nothing_to_train() -> None:
    frozen = Answers(lambda x, _: x).requires_grad_(False)
    for network in (frozen, nn.Flatten()):
        with pytest.raises(ValueError, match=r"network mine\.Net has no parameter to train: all"):
            check_first_batch(module_of(network), IMAGES, CPU)


# ---- losses that pair samples with each other ----------------------------------------------


def column(logits: Tensor) -> Tensor:
    """[N,1]."""
    return logits[:, :1]


def row(targets: Tensor) -> Tensor:
    """[N]."""
    return targets.float()


PAIRING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sub": lambda x, y: (column(x) - row(y)).square().mean(1),
    "mul": lambda x, y: (column(x) * row(y)).sum(1),
    "where": lambda x, y: torch.where(column(x) > 0, row(y), row(y) * 2).mean(1) * column(x)[:, 0],
    "mse_loss": lambda x, y: nn.functional.mse_loss(column(x), row(y), reduction="none").mean(1),
    "smooth_l1_loss": lambda x, y: nn.SmoothL1Loss()(column(x), row(y)).expand(len(y)),
}


@pytest.mark.parametrize("name", PAIRING)
def test_a_loss_that_pairs_samples_within_is_refused(name: str) -> None:
    """Its own shape is right: only within it is [N,1] stretched against [N]."""
    module = module_of(Answers(lambda x, _: x))
    module.criterion = SampleLoss("own", PAIRING[name])
    text = rf"loss own computes {name} of \[4, 1\] against \[4\], .* losses are \[N\]"
    with pytest.raises(ValueError, match=text):
        check_first_batch(module, IMAGES, CPU)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda x, y: x[:, :1], r"\[4, 1\]"),
        (lambda x, y: x.mean(), r"\[\]"),
        (lambda x, y: x, r"\[4, 3\]"),
        (lambda x, y: (x[:, :1] - row(y)[None]).square(), r"\[4, 4\]"),
        (lambda x, y: x.tolist(), "list"),
    ],
)
def test_a_loss_of_another_shape_is_refused_with_its_contract(function: Any, found: str) -> None:
    module = module_of(Answers(lambda x, _: x))
    module.criterion = SampleLoss("own", function)
    text = rf"loss own gives {found} for logits \[4, 3\] and targets \[4\]; expected the loss of "
    with pytest.raises(
        ValueError, match=text + r"each.* as f\(logits \[N,K\], targets\) -> losses"
    ):
        check_first_batch(module, IMAGES, CPU)


def test_pairs_that_are_meant_are_no_fault() -> None:
    def contrastive(logits: Tensor, targets: Tensor) -> Tensor:
        same = targets[:, None] == targets  # a comparison
        distances = (logits[:, :1] - logits[:, :1].T).abs()  # [N,1] against [1,N]
        return (distances * same).mean(1)

    module = module_of(Answers(lambda x, _: x * x.detach()[:, 0].expand(3, -1).T))
    module.criterion = SampleLoss("contrastive", contrastive)
    check_first_batch(module, IMAGES, CPU)


def test_weights_of_as_many_classes_as_samples_are_no_pairs() -> None:
    module = module_of(Answers(lambda x, _: x))
    weights = torch.ones(3)
    module.criterion = SampleLoss("own", lambda x, y: (x[:, :1] * weights).sum(1))
    check_first_batch(module, (IMAGES[0][:3], IMAGES[1][:3]), CPU)


class Overrides(Classifier):
    """`compute_loss` of a fork, which changes what ours gives."""

    change: Any = None

    def compute_loss(self, batch: Any) -> Any:
        return self.change(*super().compute_loss(batch))


CONTRACT = r"compute_loss\(batch\) -> \(losses \[N\], outcomes"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[:, None] + x, y), "pairs every"),
        (lambda x, y: ((x[:, None] * x).mean(1), y), "pairs every"),
        (lambda x, y: (x[:, None], y), rf"gives \[4, 1\] for targets \[4\]; .*{CONTRACT}"),
        (lambda x, y: (x.mean(), y), rf"gives \[\] for targets \[4\]; .*{CONTRACT}"),
        (lambda x, y: x, rf"gives float32 \[4\]; expected {CONTRACT}"),
        (lambda x, y: (x, y | {"own": x}), rf"own as float32 \[4\] with a gradient.*{CONTRACT}"),
        (lambda x, y: (x, y | {"own": x[:2]}), rf"own as float32 \[2\] for 4 .*{CONTRACT}"),
        (lambda x, y: (x.detach(), y), "no gradient"),
        (lambda x, y: (x.view(5), y), r"take its first batch, uint8 \[4, 1, 2, 2\] and targets"),
    ],
)
def test_an_overridden_loss_is_held_to_the_contract(change: Any, message: str) -> None:
    module = module_of(Answers(lambda x, _: x))
    module.__class__ = Overrides
    module.change = change
    with pytest.raises(ValueError, match=message) as caught:
        check_first_batch(module, IMAGES, CPU)
    assert "Overrides.compute_loss" in str(caught.value) or "no gradient" in message
