"""The report of a test stays small, and useful, whatever the number of classes."""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from callbacks.test_report import TestReport
from lightning_modules.losses import single_label_outcomes
from lightning_modules.outcome_buffer import OutcomeBuffer
from tasks.outcomes import Report, report
from tasks.single_label import SingleLabel
from tests.tiny import TinyRun


def counted(num_classes: int, num_samples: int, batch_size: int = 128) -> Report:
    """Of an epoch whose every tenth sample of class c is taken for class 2c + 1."""
    buffer = OutcomeBuffer(SingleLabel.row, num_classes)
    targets = torch.arange(num_samples) % num_classes
    predictions = torch.where(
        torch.arange(num_samples) % 10 == 0, (2 * targets + 1) % num_classes, targets
    )
    for part, shown in zip(targets.split(batch_size), predictions.split(batch_size), strict=True):
        logits = torch.zeros(len(part), num_classes).scatter_(1, shown[:, None], 20.0)
        buffer.add(single_label_outcomes(logits, part, torch.ones(len(part))))
    return report(task_of(num_classes), *buffer.collect(torch.device("cpu")))


def task_of(num_classes: int) -> SingleLabel:
    return SingleLabel([f"class {index}" for index in range(num_classes)])


def written(folder: Path, found: Report) -> tuple[dict[str, Any], list[str]]:
    """test.json, and the names of all files."""
    part = TestReport(TinyRun(folder))
    module = SimpleNamespace(reports={"test": found}, task=task_of(found.outcomes.num_classes))
    part.on_test_end(SimpleNamespace(is_global_zero=True), module)  # type: ignore[arg-type]
    values = json.loads((folder / "test.json").read_text(encoding="utf-8"))
    return values, sorted(path.name for path in folder.iterdir())


def test_time_and_memory_go_by_the_classes_and_not_by_their_square(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A matrix of these classes would take 3.2 GB."""
    before, start = peak_megabytes(), time.perf_counter()
    values, files = written(tmp_path, counted(20_000, 1000))
    assert peak_megabytes() - before < 300
    assert time.perf_counter() - start < 20
    assert files == ["test.json"]
    assert (tmp_path / "test.json").stat().st_size < 500_000
    assert values["accuracy"] == pytest.approx(0.9)
    assert values["num_classes"] == 20_000
    assert len(values["classes"]) == 1000
    assert values["classes"][0]["f1"] == 0.0
    assert len(values["most_confused"]) == 50
    assert "confusion_matrix" not in values
    assert "confused: class 10 taken for class 21, 1 x" in capsys.readouterr().out


def peak_megabytes() -> float:
    resource = pytest.importorskip("resource")  # not on Windows
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


@pytest.mark.parametrize(
    ("num_classes", "has_matrix", "is_drawn"),
    [(3, True, True), (100, True, True), (101, False, True), (1001, False, False)],
)
def test_a_matrix_is_shown_where_it_can_be_read(
    tmp_path: Path, num_classes: int, has_matrix: bool, is_drawn: bool
) -> None:
    values, files = written(tmp_path, counted(num_classes, 2 * num_classes))
    assert ("confusion_matrix" in values) == has_matrix
    assert ("confusion_matrix.png" in files) == is_drawn


def test_what_is_confused_most_comes_first() -> None:
    found = counted(7, 700)
    matrix = found.outcomes.confusion()
    assert matrix.sum() == 700
    task = SingleLabel([str(index) for index in range(7)])
    pairs = task.report_values(found)["most_confused"]
    counts = [pair["samples"] for pair in pairs]
    assert counts == sorted(counts, reverse=True)
    for pair in pairs:
        assert pair["true"] != pair["predicted"]
        assert matrix[int(pair["true"]), int(pair["predicted"])] == pair["samples"]
    assert sum(counts) == matrix.sum() - matrix.trace()
