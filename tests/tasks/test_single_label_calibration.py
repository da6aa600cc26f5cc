"""Temperature scaling against a known temperature and LBFGS."""

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from tasks.single_label_calibration import (
    NUM_BINS,
    calibrate,
    calibration_error,
    log_loss,
    softmax,
    temperature,
)


def sampled(true: float, num_samples: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits [M,5] whose targets are drawn from softmax(logits / true)."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 3, (num_samples, 5)).astype(np.float32)
    noise = generator.gumbel(size=logits.shape)
    return logits, (logits / true + noise).argmax(axis=1)


@pytest.mark.parametrize("true", [0.5, 1.0, 2.5])
def test_a_known_temperature_is_found_again(true: float) -> None:
    logits, targets = sampled(true)
    assert temperature(logits, targets) == pytest.approx(true, rel=0.05)
    facts = calibrate(logits, targets)
    if true == 1:
        assert facts["temperature"] == pytest.approx(1, abs=0.05)
        return
    assert facts["note"] == ""
    assert facts["error_before"] > 0.05 > 5 * facts["error_after"]


def test_it_is_the_likeliest_temperature() -> None:
    """By a general optimizer in float64."""
    logits, targets = sampled(1.7, 500)
    z, y = torch.from_numpy(logits).double(), torch.from_numpy(targets)
    scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [scale],
        max_iter=100,
        tolerance_grad=1e-12,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(z * scale.exp(), y)
        value.backward()
        return value

    optimizer.step(loss)
    assert temperature(logits, targets) == pytest.approx(np.exp(-scale.item()), rel=1e-6)


@pytest.mark.parametrize(
    ("logits", "targets", "note"),
    [
        (*sampled(2.5, 99), "100 validation samples are needed"),
        (np.eye(3)[np.arange(300) % 3], np.arange(300) % 3, "set no bound"),  # all are right
        (np.eye(3)[np.arange(300) % 3], (np.arange(300) + 1) % 3, "set no bound"),  # all are wrong
        (np.zeros((300, 3)), np.arange(300) % 3, "set no bound"),  # T makes no difference
    ],
)
def test_temperature_stays_1_and_says_why(
    logits: np.ndarray, targets: np.ndarray, note: str
) -> None:
    facts = calibrate(logits, targets)
    assert facts["temperature"] == 1
    assert note in facts["note"]
    assert facts["error_before"] == facts["error_after"]


def test_a_temperature_that_does_not_help_unseen_samples_is_not_used() -> None:
    """Of models that are calibrated already, some fits would do harm; none of them is kept."""
    kept = []
    for seed in range(8):
        logits, targets = sampled(1.0, 100, seed)
        halves = np.random.default_rng(0).permutation(100) % 2
        fits = [temperature(logits[halves != h], targets[halves != h]) for h in (0, 1)]
        after = log_loss(softmax(logits / np.choose(halves, fits)[:, None]), targets)
        facts = calibrate(logits, targets)
        kept.append(facts["temperature"] != 1)
        assert kept[-1] == (after < log_loss(softmax(logits), targets))
        assert ("no temperature helps" in facts["note"]) != kept[-1]
    assert {True, False} == set(kept)


def test_an_upper_edge_belongs_to_its_bin() -> None:
    """Both confidences lie in the third of 15 bins, so their gaps cancel in part."""
    probabilities = np.full((2, 10), [[0.8 / 9], [0.85 / 9]])
    probabilities[:, 0] = 0.2, 0.15
    assert calibration_error(probabilities, np.array([0, 1])) == pytest.approx((0.8 - 0.15) / 2)


def test_large_logits_do_not_overflow() -> None:
    logits, targets = sampled(2.0, 1000)
    assert temperature(logits * 1e4, targets) == pytest.approx(20, rel=0.01)  # the bound
    assert calibrate(logits * 1e4, targets)["temperature"] == 1


def test_the_error_is_that_of_torchmetrics() -> None:
    logits, targets = sampled(2.0, 3000)
    probabilities = softmax(logits)
    expected = multiclass_calibration_error(
        torch.from_numpy(probabilities).float(), torch.from_numpy(targets), 5, NUM_BINS
    )
    assert calibration_error(probabilities, targets) == pytest.approx(float(expected), abs=1e-6)
