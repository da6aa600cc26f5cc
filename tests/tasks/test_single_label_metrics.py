"""Every figure against scikit-learn, and independence of batch size and rank."""

import numpy as np
import pytest
import torch
from sklearn import metrics as reference

from lightning_modules import outcome_buffer
from lightning_modules.losses import single_label_outcomes
from lightning_modules.outcome_buffer import OutcomeBuffer
from tasks.outcomes import Report, metric_names, report
from tasks.single_label import SingleLabel

CPU = torch.device("cpu")


def logits_and_targets(num_samples: int, num_classes: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(num_samples, num_classes, generator=generator)
    targets = torch.randint(num_classes, (num_samples,), generator=generator)
    return logits, targets


def task_of(num_classes: int) -> SingleLabel:
    return SingleLabel([f"class {index}" for index in range(num_classes)])


def buffer_of(num_classes: int, keeps_scores: bool = False) -> OutcomeBuffer:
    return OutcomeBuffer(SingleLabel.row, num_classes, keeps_scores)


def reported(buffer: OutcomeBuffer) -> Report:
    return report(task_of(buffer.num_outputs), *buffer.collect(CPU))


def count(logits, targets, batch_size, num_classes) -> Report:
    counts = buffer_of(num_classes, keeps_scores=True)
    for part, labels in zip(logits.split(batch_size), targets.split(batch_size), strict=True):
        losses = torch.nn.functional.cross_entropy(part, labels, reduction="none")
        counts.add(single_label_outcomes(part, labels, losses))
    return reported(counts)


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")  # of scikit-learn
@pytest.mark.parametrize(("num_samples", "num_classes"), [(7, 3), (500, 10), (40, 20), (300, 6)])
def test_equals_scikit_learn(num_samples: int, num_classes: int) -> None:
    logits, targets = logits_and_targets(num_samples, num_classes)
    found = count(logits, targets, 64, num_classes)
    outcomes, scalars = found.outcomes, found.scalars
    true, predicted = targets.numpy(), logits.argmax(dim=1).numpy()
    labels = range(num_classes)
    precision, recall, f1, support = reference.precision_recall_fscore_support(
        true, predicted, labels=labels, zero_division=0
    )
    np.testing.assert_array_equal(
        outcomes.confusion(), reference.confusion_matrix(true, predicted, labels=labels)
    )
    np.testing.assert_allclose(outcomes.precision, precision, rtol=1e-14)
    np.testing.assert_allclose(outcomes.recall, recall, rtol=1e-14)
    np.testing.assert_allclose(outcomes.f1, f1, rtol=1e-14)
    np.testing.assert_array_equal(outcomes.support, support)
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
    if set(true) == set(labels):
        probabilities = outcomes.scores.astype(np.float64)
        area = reference.roc_auc_score(
            outcomes.targets,
            probabilities / probabilities.sum(axis=1, keepdims=True),
            multi_class="ovr",
        )
        assert scalars["auroc"] == pytest.approx(area, abs=1e-12)
    assert scalars["balanced_accuracy"] == pytest.approx(
        reference.balanced_accuracy_score(true, predicted), abs=1e-14
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
    found = count(logits, targets, 100, 4)
    assert found.scalars["calibration_error"] == pytest.approx(expected, abs=1e-5)


def test_batch_size_changes_no_bit() -> None:
    logits, targets = logits_and_targets(7, 3)
    reports = [count(logits, targets, batch_size, 3).scalars for batch_size in (1, 3, 7)]
    assert reports[0] == reports[1] == reports[2]


def test_order_changes_no_bit() -> None:
    logits, targets = logits_and_targets(300, 6)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    logits = logits.round()  # rows of the table that are equal, but not all of their scores
    first = count(logits, targets, 32, 6)
    other = count(logits[order], targets[order], 50, 6)
    assert other.scalars == first.scalars
    np.testing.assert_array_equal(other.outcomes.scores, first.outcomes.scores)
    np.testing.assert_array_equal(other.outcomes.losses, first.outcomes.losses)


def test_soft_targets_count_as_their_likeliest_class() -> None:
    soft = torch.tensor([[0.7, 0.3, 0.0], [0.0, 0.4, 0.6]])
    buffer = buffer_of(3)
    logits = torch.tensor([[9.0, 0, 0], [9.0, 0, 0]])
    buffer.add(single_label_outcomes(logits, soft, torch.zeros(2)))
    found = reported(buffer)
    assert found.outcomes.confusion().tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("capacity", [100, 2])
def test_one_non_finite_loss_makes_the_loss_non_finite(monkeypatch, capacity: int) -> None:
    monkeypatch.setattr(outcome_buffer, "CAPACITY", capacity)
    buffer = buffer_of(2)
    assert buffer.losses_are_finite()
    logits, targets = torch.zeros(2, 2), torch.zeros(2).long()
    buffer.add(single_label_outcomes(logits, targets, torch.tensor([1.0, 3.0])))
    assert buffer.losses_are_finite()
    buffer.add(single_label_outcomes(logits, targets, torch.tensor([torch.nan, 2.0])))
    buffer.add(single_label_outcomes(logits, targets, torch.tensor([1.0, 2.0])))
    assert not buffer.losses_are_finite()
    scalars = reported(buffer).scalars
    assert np.isnan(scalars["loss"])
    assert scalars["accuracy"] == 1.0


def test_an_absent_class_is_left_out_of_the_macro_mean() -> None:
    logits = torch.eye(3)[[0, 1, 1]]
    found = count(logits, torch.tensor([0, 1, 1]), 3, 3)
    assert found.scalars["f1"] == 1.0


def test_reset_forgets_everything() -> None:
    logits, targets = logits_and_targets(20, 3)
    buffer = buffer_of(3, keeps_scores=True)
    buffer.add(single_label_outcomes(logits, targets, torch.ones(20)))
    buffer.reset()
    buffer.add(single_label_outcomes(logits[:5], targets[:5], torch.ones(5)))
    found = reported(buffer)
    assert found.outcomes.num_samples == 5
    assert found.scalars["loss"] == 1.0


@pytest.mark.parametrize("num_classes", [3, 10])
@pytest.mark.parametrize("has_scores", [False, True])
def test_names_are_known_before_counting(num_classes: int, has_scores: bool) -> None:
    logits, targets = logits_and_targets(20, num_classes)
    buffer = buffer_of(num_classes, keeps_scores=has_scores)
    buffer.add(single_label_outcomes(logits, targets, torch.ones(20)))
    names = metric_names(task_of(num_classes), has_scores)
    assert names == list(reported(buffer).scalars)
    assert ("auroc" in names) == has_scores
    assert ("top_5_accuracy" in names) == (num_classes > 5)


def test_nothing_counted_is_no_number() -> None:
    scalars = reported(buffer_of(10, keeps_scores=True)).scalars
    assert all(np.isnan(value) for value in scalars.values())
