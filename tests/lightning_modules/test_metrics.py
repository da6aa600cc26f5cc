"""Every figure against scikit-learn, and independence of batch size and rank."""

import numpy as np
import pytest
import torch
from sklearn import metrics as reference

from lightning_modules.metrics import ClassificationCounts, ClassificationReport


def logits_and_targets(num_samples: int, num_classes: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(num_samples, num_classes, generator=generator)
    targets = torch.randint(num_classes, (num_samples,), generator=generator)
    return logits, targets


def count(logits, targets, batch_size, num_classes) -> ClassificationReport:
    counts = ClassificationCounts(num_classes)
    for part, labels in zip(logits.split(batch_size), targets.split(batch_size), strict=True):
        losses = torch.nn.functional.cross_entropy(part, labels, reduction="none")
        counts.update(part, labels, losses)
    return counts.report()


@pytest.mark.parametrize(("num_samples", "num_classes"), [(7, 3), (500, 10), (40, 20)])
def test_equals_scikit_learn(num_samples: int, num_classes: int) -> None:
    logits, targets = logits_and_targets(num_samples, num_classes)
    report = count(logits, targets, 64, num_classes)
    true, predicted = targets.numpy(), logits.argmax(dim=1).numpy()
    labels = range(num_classes)
    precision, recall, f1, support = reference.precision_recall_fscore_support(
        true, predicted, labels=labels, zero_division=0
    )
    np.testing.assert_array_equal(
        report.confusion, reference.confusion_matrix(true, predicted, labels=labels)
    )
    np.testing.assert_allclose(report.precision, precision, rtol=1e-14)
    np.testing.assert_allclose(report.recall, recall, rtol=1e-14)
    np.testing.assert_allclose(report.f1, f1, rtol=1e-14)
    np.testing.assert_array_equal(report.support, support)
    scalars = report.scalars()
    assert scalars["accuracy"] == pytest.approx(reference.accuracy_score(true, predicted))
    macro = reference.precision_recall_fscore_support(
        true, predicted, average="macro", zero_division=0
    )
    assert scalars["precision"] == pytest.approx(macro[0], abs=1e-14)
    assert scalars["recall"] == pytest.approx(macro[1], abs=1e-14)
    assert scalars["f1"] == pytest.approx(macro[2], abs=1e-14)
    assert scalars["loss"] == pytest.approx(
        reference.log_loss(true, logits.double().softmax(1).numpy(), labels=labels), abs=1e-6
    )
    if num_classes > 5:
        top = reference.top_k_accuracy_score(true, logits.numpy(), k=5, labels=labels)
        assert scalars["top_5_accuracy"] == pytest.approx(top)


def test_calibration_error_equals_its_definition() -> None:
    logits, targets = logits_and_targets(1000, 4)
    confidence, predicted = logits.double().softmax(1).max(1)
    correct = (predicted == targets).double()
    expected = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            gap = correct[inside].mean() - confidence[inside].mean()
            expected += float(inside.double().mean() * gap.abs())
    report = count(logits, targets, 100, 4)
    assert report.calibration_error == pytest.approx(expected, abs=1e-5)


def test_batch_size_changes_no_bit() -> None:
    logits, targets = logits_and_targets(7, 3)
    reports = [count(logits, targets, batch_size, 3).scalars() for batch_size in (1, 3, 7)]
    assert reports[0] == reports[1] == reports[2]


def test_order_changes_no_bit() -> None:
    logits, targets = logits_and_targets(300, 6)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    first = count(logits, targets, 32, 6).scalars()
    assert count(logits[order], targets[order], 50, 6).scalars() == first


def test_soft_targets_count_as_their_likeliest_class() -> None:
    counts = ClassificationCounts(3)
    soft = torch.tensor([[0.7, 0.3, 0.0], [0.0, 0.4, 0.6]])
    counts.update(torch.tensor([[9.0, 0, 0], [9.0, 0, 0]]), soft, torch.zeros(2))
    assert counts.report().confusion.tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 0]]


def test_one_non_finite_loss_makes_the_loss_non_finite() -> None:
    counts = ClassificationCounts(2)
    counts.update(torch.zeros(3, 2), torch.zeros(3).long(), torch.tensor([1.0, torch.nan, 2.0]))
    assert np.isnan(counts.report().loss)
    assert counts.report().accuracy == 1.0


def test_an_absent_class_is_left_out_of_the_macro_mean() -> None:
    logits = torch.eye(3)[[0, 1, 1]]
    report = count(logits, torch.tensor([0, 1, 1]), 3, 3)
    assert report.scalars()["f1"] == 1.0


def test_reset_forgets_everything() -> None:
    logits, targets = logits_and_targets(20, 3)
    counts = ClassificationCounts(3)
    counts.update(logits, targets, torch.ones(20))
    counts.reset()
    counts.update(logits[:5], targets[:5], torch.ones(5))
    assert counts.report().num_samples == 5
    assert counts.report().loss == 1.0


def test_names_are_known_before_counting() -> None:
    assert ClassificationCounts(10).scalar_names() == list(
        count(*logits_and_targets(20, 10), 20, 10).scalars()
    )
