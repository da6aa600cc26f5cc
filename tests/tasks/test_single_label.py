"""Targets, decisions and answers of the single-label task, against tables made by hand."""

import pickle
import re

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from tasks import TASKS
from tasks.base import Task, build_task
from tasks.single_label import SingleLabel

TASK: Task = SingleLabel(["cat", "dog", "owl"])


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.array([0, 1, 2]), None),
        (np.array([2], np.uint8), None),
        (np.array([0, 3]), "label 3 in row 1 lies outside 0..2; labels count from 0"),
        (np.array([-1, 3]), "label -1 in row 0 lies outside 0..2 (2 such rows); labels count"),
        (np.array([0.0, 1.0]), "targets are float64 [2], expected integers [2]"),
        (np.array([[0], [1]]), "targets are int64 [2, 1], expected integers [2]"),
        (np.array(1), "targets are int64 [], expected integers"),
        (np.array([True, False]), "targets are bool [2], expected integers [2]"),
    ],
)
def test_a_bad_target_is_named(targets: np.ndarray, message: str | None) -> None:
    found = TASK.bad_target(targets)
    assert found is None if message is None else str(found).startswith(message)


def test_it_is_what_its_values_say() -> None:
    description = {"task": "single_label", "class_names": ["cat", "dog", "owl"], "kind": "image"}
    assert build_task(description) == TASK == pickle.loads(pickle.dumps(TASK))
    assert build_task({"class_names": ["cat"]}) != TASK  # an older one names no task
    assert build_task({"task": TASK.name, **TASK.values}) == TASK
    assert (TASK.num_outputs, TASK.row.itemsize) == (3, 16)
    assert {TASK.row[name].itemsize for name in TASK.row.names or ()} == {4}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "several"}, f"unknown task 'several'; there are {', '.join(TASKS)}"),
        ({"task": ["single_label"]}, "unknown task ['single_label']"),
        ({}, "single_label needs class_names, a list of texts; got None"),
        ({"class_names": "ab"}, "single_label needs class_names, a list of texts; got 'ab'"),
        ({"class_names": [1, 2]}, "single_label needs class_names, a list of texts; got [1, 2]"),
    ],
)
def test_values_that_make_no_task(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build_task(values)


def test_a_file_is_compared_sample_by_sample() -> None:
    #                     right      wrong      a tie        right
    reference = np.array([[9, 0, 0], [0, 9, 0], [0, 1, 1.0], [0, 0, 9]])
    outputs = np.array([[8, 0, 0], [0, 0, 9], [0, 1, 1.1], [0, 9, 0]])
    targets = np.array([0, 2, 2, 2])
    found = TASK.compare(outputs, reference, targets)
    assert found.agreement == 25
    assert found.flipped == 2  # the tie was not decided clearly
    assert (found.score, found.difference, found.step) == (75, 25, 25)
    assert found.paired["samples"] == 4
    assert (found.paired["lost"], found.paired["won"]) == (1, 2)
    assert found.words.startswith("1 lost and 2 won of 4, 95 % interval ")
    assert found.scores().keys() == {"accuracy", "accuracy_difference", "paired"}
    assert TASK.evaluate(reference, targets)["accuracy"] == 0.5


def test_answers_are_the_likeliest_classes_that_are_likely_enough() -> None:
    logits = np.log([[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]])
    (first, second) = TASK.answers(logits, 1.0, 2, 0.1)
    assert [name for name, _ in first] == ["dog", "owl"]
    assert [p for _, p in first] == pytest.approx([0.5, 0.3])
    assert [name for name, _ in second] == ["cat"]
    assert TASK.answers(logits, 1.0, 3, 0.95) == [[], []]
    ((name, probability), *_) = TASK.answers(logits, 2.0, 1, 0.0)[0]
    assert name == "dog"
    assert probability == pytest.approx(0.5**0.5 / (0.2**0.5 + 0.5**0.5 + 0.3**0.5))


def test_a_sample_is_shown_by_names() -> None:
    columns = {
        "target": np.array([0, 2]),
        "prediction": np.array([2 * 1 + 1, 2 * 2]),
        "confidence": np.array([0.75, 0.1234567], np.float32),
    }
    rows = TASK.prediction_rows(columns)
    assert rows == [["cat", "dog", 0.75], ["owl", "owl", 0.123457]]
    assert len(TASK.prediction_columns) == len(rows[0])


def test_scores_by_class_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    targets, predicted = generator.integers(0, 4, 200), generator.integers(0, 5, 200)
    predicted[:100] = targets[:100]
    expected = precision_recall_fscore_support(targets, predicted, labels=range(6), zero_division=0)
    task = SingleLabel(list("abcdef"))
    for k, found in enumerate(task.evaluate(np.eye(6)[predicted], targets)["classes"]):
        values = [found[name] for name in ("precision", "recall", "f1", "samples")]
        assert values == pytest.approx([float(column[k]) for column in expected])
