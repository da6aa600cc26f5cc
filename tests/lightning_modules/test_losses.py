"""Class weights keep the mean loss comparable; bad ones are refused."""

import numpy as np
import pytest
import torch

from lightning_modules.losses import ClassificationLoss, scaled_class_weights

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
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\), got 1.0"),
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
