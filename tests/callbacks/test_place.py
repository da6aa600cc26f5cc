"""Which moments have a place that a run can go on from, and what is written for it."""

from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.loops.progress import _BatchProgress, _ProcessedTracker, _Progress

from callbacks.place import LIGHTNING, Place, go_on_with, loop_state, place_of


def tracker(*counts: int) -> _ProcessedTracker:
    names = ("ready", "started", "processed", "completed")
    return _ProcessedTracker(**dict(zip(names, counts, strict=True)))


def stand_in(epoch: tuple, batch: tuple, is_last: bool = False, **others: Any) -> Any:
    """A trainer of which nothing but its counters is known."""
    epochs = _Progress(tracker(*epoch), tracker(*epoch))
    batches = _BatchProgress(tracker(*batch), tracker(*batch), is_last_batch=is_last)
    loop = SimpleNamespace(
        epoch_progress=epochs, epoch_loop=SimpleNamespace(batch_progress=batches)
    )
    names = {"validating": False, "should_stop": False, "global_step": 9}
    names |= {"accumulate_grad_batches": 1, "fit_loop": loop}
    return SimpleNamespace(**names | others)


IN_EPOCH = (2, 2, 1, 1)
MOMENTS = {  # epochs, batches, last batch, others -> epochs and batches done
    "nothing is done": ((0, 0, 0, 0), (0, 0, 0, 0), False, {}, (0, 0)),
    "an epoch is announced": ((1, 0, 0, 0), (0, 0, 0, 0), False, {}, (0, 0)),
    "a later one is": ((2, 1, 1, 1), (6, 6, 6, 6), True, {}, (1, 0)),
    "training is over": ((1, 1, 1, 1), (6, 6, 6, 6), True, {}, (1, 0)),
    "it was ended within an epoch": ((1, 1, 1, 1), (3, 3, 3, 3), False, {}, None),
    "a batch is announced": (IN_EPOCH, (4, 3, 3, 3), False, {}, (1, 3)),
    "the last batch is": (IN_EPOCH, (6, 5, 5, 5), True, {}, (1, 5)),
    "a batch is awaited": (IN_EPOCH, (3, 3, 3, 3), False, {}, (1, 3)),
    "a step is going on": (IN_EPOCH, (4, 4, 3, 3), False, {}, None),
    "a step ends": (IN_EPOCH, (4, 4, 4, 3), False, {}, None),
    "a validation": (IN_EPOCH, (3, 3, 3, 3), False, {"validating": True}, None),
    "the last validation": (
        IN_EPOCH, (3, 3, 3, 3), False, {"validating": True, "should_stop": True}, (1, 3),
    ),
    "the validation of an epoch": (
        IN_EPOCH, (6, 6, 6, 6), True, {"validating": True, "should_stop": True}, None,
    ),
    "an epoch that was cut ends": ((2, 2, 2, 1), (3, 3, 3, 3), False, {}, (1, 3)),
    "an epoch ends": ((2, 2, 2, 1), (6, 6, 6, 6), True, {}, None),
    "within a window": (IN_EPOCH, (4, 3, 3, 3), False, {"accumulate_grad_batches": 2}, None),
    "after a window": (IN_EPOCH, (5, 4, 4, 4), False, {"accumulate_grad_batches": 2}, (1, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", MOMENTS)
def test_what_is_between_two_steps(name: str) -> None:
    epochs, batches, is_last, others, expected = MOMENTS[name]
    found = place_of(stand_in(epochs, batches, is_last, **others))
    assert found == (expected and Place(*expected, steps=9))


@pytest.mark.parametrize(
    ("place", "is_manual", "epochs", "batches", "logged"),
    [
        (Place(0, 0, 0), False, (0, 0, 0, 0), None, None),
        (Place(2, 0, 12), False, (2, 2, 2, 2), None, None),
        (Place(2, 4, 16), False, (3, 3, 2, 2), (4, 4, 4, 3), 15),
        (Place(2, 4, 8), False, (3, 3, 2, 2), (4, 4, 4, 3), 7),  # windows of two batches
        (Place(2, 4, 32), True, (3, 3, 2, 2), (4, 4, 4, 3), 15),  # two optimizers
    ],
)
def test_the_counters_of_a_place(place, is_manual, epochs, batches, logged) -> None:
    state = loop_state(place, 12, is_manual)
    assert tuple(state["epoch_progress"]["current"].values()) == epochs
    if batches is None:
        assert list(state) == ["epoch_progress"]
        return
    found = state["epoch_loop.batch_progress"]
    assert tuple(found["current"].values()) == batches
    assert tuple(found["total"].values()) == tuple(12 + n for n in batches)
    assert state["epoch_loop.state_dict"] == {"_batches_that_stepped": logged}


def test_another_batch_keeps_the_count_of_earlier_epochs() -> None:
    trainer = stand_in((2, 2, 1, 1), (4, 4, 4, 3))
    progress = trainer.fit_loop.epoch_loop.batch_progress
    progress.total = tracker(10, 10, 10, 9)
    for batch in (7, 0):
        go_on_with(trainer, batch)
        assert progress.current == tracker(batch, batch, batch, batch - 1)
        assert progress.total == tracker(6 + batch, 6 + batch, 6 + batch, 5 + batch)


def test_the_version_whose_loops_were_read() -> None:
    assert pl.__version__ == LIGHTNING
