"""Rows of any task are packed by its own fields, wherever its loss stands."""

import numpy as np
import pytest
import torch

from lightning_modules import outcome_buffer
from lightning_modules.losses import OUTCOMES
from lightning_modules.outcome_buffer import OutcomeBuffer
from tasks import TASKS
from tasks.single_label import SingleLabel

CPU = torch.device("cpu")
ROW = np.dtype([("loss", np.float32), ("count", np.int32), ("error", np.float32)])


def test_columns_become_the_fields_of_rows_in_canonical_order() -> None:
    buffer = OutcomeBuffer(ROW, 2, keeps_scores=True)
    columns = {
        "count": torch.tensor([7, -1]),
        "error": torch.tensor([0.25, -2.0], dtype=torch.float64),
        "loss": torch.tensor([1.0, 0.5]),
        "scores": torch.tensor([[0.1, 0.9], [0.8, 0.2]]),
    }
    for part in (slice(1), slice(1, 2)):
        buffer.add({name: column[part] for name, column in columns.items()})
    rows, scores = buffer.collect(CPU)
    assert rows.dtype == ROW
    assert [row.tobytes() for row in rows] == sorted(row.tobytes() for row in rows)
    assert sorted(rows.tolist()) == [(0.5, -1, -2.0), (1.0, 7, 0.25)]
    np.testing.assert_array_equal(scores[:, 0] > 0.5, rows["count"] < 0)  # each its own
    again = OutcomeBuffer(ROW, 2)
    again.restore(buffer.state(CPU))
    np.testing.assert_array_equal(again.collect(CPU)[0], rows)


@pytest.mark.parametrize("capacity", [100, 1])
def test_losses_are_found_by_the_name_of_their_field(
    monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    monkeypatch.setattr(outcome_buffer, "CAPACITY", capacity)
    buffer = OutcomeBuffer(ROW, 2)
    one = {"loss": torch.ones(1), "count": torch.ones(1).int(), "error": torch.tensor([torch.nan])}
    for _ in range(2):
        buffer.add(one)
    assert buffer.losses_are_finite()
    buffer.add(one | {"loss": torch.tensor([torch.inf])})
    buffer.add(one)
    assert not buffer.losses_are_finite()


def test_every_task_has_its_outcomes() -> None:
    assert OUTCOMES.keys() == TASKS.keys()


def test_the_outcomes_of_a_batch_are_the_fields_of_its_task() -> None:
    logits = torch.tensor([[0.0, 1, 2, 3, 4, 5, 6], [9, 0, 0, 0, 0, 0, 0]])
    targets = torch.tensor([1, 0])
    found = OUTCOMES["single_label"](logits, targets, torch.ones(2))
    assert [*found] == [*(SingleLabel.row.names or ()), "scores"]
    assert found["prediction"].tolist() == [2 * 6, 2 * 0 + 1]  # class 1 is the sixth of seven
    torch.testing.assert_close(found["scores"], logits.softmax(1))
    torch.testing.assert_close(found["confidence"], found["scores"].max(1).values)
