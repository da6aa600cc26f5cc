"""Class weights keep the mean loss comparable; bad ones are refused."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lightning_modules.losses import (
    ClassificationLoss,
    Loss,
    SampleLoss,
    build_loss,
    scaled_class_weights,
)

TARGETS = np.array([0] * 6 + [1] * 3 + [2])


def test_balanced_weights_average_to_one_over_the_samples() -> None:
    weights = scaled_class_weights("balanced", np.bincount(TARGETS))
    assert (weights[TARGETS]).mean() == pytest.approx(1)
    shares = weights * np.bincount(TARGETS)
    np.testing.assert_allclose(shares, shares[0])


def test_weighted_loss_of_a_sample_is_its_weight_times_its_loss() -> None:
    logits, targets = torch.randn(10, 3), torch.from_numpy(TARGETS)
    plain = ClassificationLoss(3, TARGETS)(logits, targets)
    weighted = ClassificationLoss(3, TARGETS, class_weights=[1.0, 2.0, 4.0])
    scale = 16 / 10  # (6 * 1 + 3 * 2 + 1 * 4) / 10
    expected = plain * torch.tensor([1.0, 2.0, 4.0])[targets] / scale
    torch.testing.assert_close(weighted(logits, targets), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("soft", [False, True])
def test_loss_is_exact_in_every_precision(dtype: torch.dtype, soft: bool) -> None:
    """Lightning converts the module, and shares of mixup may come in any format."""
    logits, targets = torch.randn(10, 3).to(dtype), torch.from_numpy(TARGETS)
    shares = torch.nn.functional.one_hot(targets, 3).to(torch.bfloat16)
    loss = ClassificationLoss(3, TARGETS, label_smoothing=0.1, class_weights=[1.0, 2.1, 4.3])
    expected = loss(logits.double(), shares.double() if soft else targets)
    found = loss.to(dtype)(logits, shares if soft else targets)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)


def test_smoothing_equals_soft_targets() -> None:
    logits, targets = torch.randn(10, 3), torch.from_numpy(TARGETS)
    soft = 0.9 * torch.nn.functional.one_hot(targets, 3) + 0.1 / 3
    smoothed = ClassificationLoss(3, TARGETS, label_smoothing=0.1)(logits, targets)
    torch.testing.assert_close(ClassificationLoss(3, TARGETS)(logits, soft), smoothed)


def test_weights_are_not_part_of_a_checkpoint() -> None:
    assert not ClassificationLoss(3, TARGETS, class_weights="balanced").state_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"class_weights": [1.0, 2.0]}, "needs 3 finite values >= 0"),
        ({"class_weights": [1.0, -1.0, 1.0]}, "needs 3 finite values >= 0"),
        ({"class_weights": [0.0, 0.0, 0.0]}, "must not all be zero"),
    ],
)
def test_bad_values_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassificationLoss(3, TARGETS, **arguments)


def test_balanced_needs_every_class() -> None:
    with pytest.raises(ValueError, match="a class has no training sample"):
        ClassificationLoss(4, TARGETS, class_weights="balanced")


# ---- own losses ---------------------------------------------------------------------------


def focal(logits: Tensor, targets: Tensor, gamma: float = 2.0) -> Tensor:
    losses = cross_entropy(logits, targets, reduction="none")
    return (1 - (-losses).exp()) ** gamma * losses


class Margin(nn.Module):
    """Asks for what only the data knows."""

    def __init__(self, num_classes: int, margin: float, weight: bool = False) -> None:
        super().__init__()
        self.register_buffer("offset", torch.full((num_classes,), margin))
        if weight:
            self.weight = nn.Parameter(torch.ones(num_classes))

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(logits + self.offset, targets, reduction="none")


def no_loss(logits: Tensor) -> Tensor:
    return logits


def own(name: str, **arguments: object) -> SampleLoss:
    path = f"tests.lightning_modules.test_losses.{name}"
    return build_loss(3, TARGETS, path, allow_external_code=True, **arguments)


def test_own_losses_take_their_arguments() -> None:
    logits, targets = torch.randn(10, 3), torch.from_numpy(TARGETS)
    torch.testing.assert_close(
        own("focal", gamma=0.5)(logits, targets), focal(logits, targets, 0.5)
    )
    assert own("Margin", margin=0.5)(logits, targets).shape == (10,)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda x, y: cross_entropy(x, y), r"\[\]"),
        (lambda x, y: x[:, :1] - y, r"\[10, 10\]"),  # [N,1] against [N] broadcasts
        (lambda x, y: x[:, :1], r"\[10, 1\]"),
        (lambda x, y: x[:, 0].tolist(), "list"),
    ],
)
def test_another_shape_than_a_loss_a_sample_is_refused(function: Loss, found: str) -> None:
    text = rf"loss mine gives {found} for logits \[10, 3\] and targets \[10\]; .*sample, \[10\]"
    with pytest.raises(ValueError, match=text):
        SampleLoss("mine", function)(torch.randn(10, 3), torch.from_numpy(TARGETS))


def test_shares_as_targets_are_a_sample_each() -> None:
    loss, shares = SampleLoss("mine", lambda x, y: (x - y).square().mean(1)), torch.rand(10, 3)
    assert loss(torch.randn(10, 3), shares).shape == (10,)


def test_half_precision_is_widened_and_double_is_kept() -> None:
    weighted = build_loss(3, TARGETS, class_weights=[1.0, 2.0, 4.0])
    for given, found in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        logits = torch.randn(10, 3, dtype=given)
        assert weighted(logits, torch.from_numpy(TARGETS)).dtype == found


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("no_loss", {}, r"is no loss: expected f\(logits, targets\), or a class"),
        ("TARGETS", {}, "is no loss"),
        ("Margin", {"margin": 1.0, "weight": True}, r"has parameters \(weight\), which the"),
    ],
)
def test_what_cannot_be_a_loss(name: str, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        own(name, **arguments)


def test_own_losses_need_permission() -> None:
    with pytest.raises(ValueError, match="--allow_external_code"):
        build_loss(3, TARGETS, "torch.nn.functional.cross_entropy")
