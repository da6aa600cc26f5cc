"""What every kind of event leaves in its files: where training stands, and Lightning's counters.

A row is one file that was written, in the words of `saved_places`.
"""

from pathlib import Path

import pytest

from tests.callbacks.saved_places import Event, SavesInValidation, StallsAt, rows_of

EVENTS: dict[str, Event] = {
    "epochs": Event({}),
    "signal at the start of an epoch": Event({}, stops=[6]),
    "signal in an epoch": Event({}, stops=[3]),
    "signal in a window": Event({"accumulate_grad_batches": 4}, stops=[1]),
    "interval": Event({"max_epochs": 1}, interval="2"),
    "interval, windows of 3": Event({"max_epochs": 2, "accumulate_grad_batches": 3}, interval="1"),
    "the best in a window": Event(
        {"max_epochs": 1, "accumulate_grad_batches": 3, "val_check_interval": 4}
    ),
    "validation in an epoch": Event({"max_epochs": 1, "val_check_interval": 0.5}),
    "a file of another callback in a validation": Event(
        {"max_epochs": 1, "val_check_interval": 3}, others=[SavesInValidation]
    ),
    "max_steps in an epoch": Event({"max_steps": 8, "max_epochs": 3}),
    "max_steps at a validation": Event({"max_steps": 9, "val_check_interval": 3}),
    "max_steps at an epoch's end": Event({"max_steps": 6}),
    "max_steps, no epochs": Event({"max_steps": 8, "max_epochs": -1}, stops=[6, 1, None]),
    "max_time": Event({}, seconds=9),
    "max_time in a window": Event({"accumulate_grad_batches": 4}, seconds=3),
    "no batch in time": Event({}, others=[StallsAt(8)]),
    "no batch in time, windows": Event({"accumulate_grad_batches": 3}, others=[StallsAt(4)]),
    "early stopping": Event({"max_epochs": 4}, patience=1),
    "early stopping in an epoch": Event({"val_check_interval": 2}, patience=2),
    "early stopping in a window": Event(
        {"val_check_interval": 3, "accumulate_grad_batches": 2}, patience=2
    ),
    "resumed once": Event({}, stops=[3, None]),
    "resumed twice": Event({}, stops=[3, 2, None]),
    "resumed, and stopped before a step": Event({}, stops=[3, 0, 0]),
    "resumed at an epoch's start": Event({}, stops=[6, 0, None]),
    "resumed with smaller batches": Event({}, stops=[4, 1], batch_sizes=[8, 6]),
    "resumed with larger batches": Event({}, stops=[5, 1], batch_sizes=[8, 12]),
    "resumed after the end": Event({"max_epochs": 1}, stops=[None, None]),
    "two optimizers": Event({}, stops=[3, None], two_optimizers=True, interval="2"),
}


GOLDEN = """
## epochs
last.ckpt 0:0:0
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above
best.ckpt 2:0:12 logged 12 epochs 2 batches 12/6! val 2! steps 12/6
last.ckpt as above

## signal at the start of an epoch
last.ckpt 0:0:0
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above
SystemExit

## signal in an epoch
last.ckpt 0:0:0
last.ckpt 0:3:3 samples 24 logged 2 epochs 1,1,0,0 batches 3,3,3,2 steps 3
SystemExit

## signal in a window
last.ckpt 0:0:0
last.ckpt 0:4:1 samples 32 epochs 1,1,0,0 batches 4,4,4,3 steps 1
SystemExit

## interval
last.ckpt 0:0:0
last.ckpt 0:2:2 samples 16 logged 1 epochs 1,1,0,0 batches 2,2,2,1 steps 2
last.ckpt 0:4:4 samples 32 logged 3 epochs 1,1,0,0 batches 4,4,4,3 steps 4
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above

## interval, windows of 3
last.ckpt 0:0:0
last.ckpt 0:3:1 samples 24 epochs 1,1,0,0 batches 3,3,3,2 steps 1
best.ckpt 1:0:2 logged 2 epochs 1 batches 6! val 2! steps 2
last.ckpt as above
last.ckpt 1:3:3 samples 24 logged 2 epochs 2,2,1,1 batches 9,9,9,8/3,3,3,2 val 0/2! steps 3/1
best.ckpt 2:0:4 logged 4 epochs 2 batches 12/6! val 2! steps 4/2
last.ckpt as above

## the best in a window
last.ckpt 0:0:0
best.ckpt 0:-:1 logged 1 epochs 1,1,0,0 batches 4 val 2! steps 1 cleared 2
best.ckpt 1:0:2 logged 2 epochs 1 batches 6! val 4/2! steps 2
last.ckpt as above

## validation in an epoch
last.ckpt 0:0:0
best.ckpt 0:3:3 samples 24 logged 2 epochs 1,1,0,0 batches 3,3,3,2 val 2! steps 3
last.ckpt as above
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 4/2! steps 6
last.ckpt as above

## a file of another callback in a validation
last.ckpt 0:0:0
own.ckpt 0:-:3 logged 2 epochs 1,1,0,0 batches 3 val 1,0,0,0 steps 3
own.ckpt 0:-:3 logged 2 epochs 1,1,0,0 batches 3 val 2,1,1,1! steps 3
best.ckpt 0:3:3 samples 24 logged 2 epochs 1,1,0,0 batches 3,3,3,2 val 2! steps 3
last.ckpt as above
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 4/2! steps 6
last.ckpt as above

## max_steps in an epoch
last.ckpt 0:0:0
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above
pending 1:2:8 samples 16 logged 7 epochs 2,2,1,1 batches 8,8,8,7/2,2,2,1 steps 8/2
best.ckpt 1:2:8 samples 16 logged 7 epochs 2,2,1,1 batches 8,8,8,7/2,2,2,1 val 2! steps 8/2
= last.ckpt 1:2:8 samples 16 logged 7 epochs 2,2,1,1 batches 8,8,8,7/2,2,2,1 steps 8/2

## max_steps at a validation
last.ckpt 0:0:0
best.ckpt 0:3:3 samples 24 logged 2 epochs 1,1,0,0 batches 3,3,3,2 val 2! steps 3
last.ckpt as above
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 4/2! steps 6
last.ckpt as above
best.ckpt 1:3:9 samples 24 logged 8 epochs 2,2,1,1 batches 9,9,9,8/3,3,3,2 val 2! steps 9/3
last.ckpt as above

## max_steps at an epoch's end
last.ckpt 0:0:0
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above

## max_steps, no epochs
last.ckpt 0:0:0
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above
SystemExit
last.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt 1:1:7 samples 8 logged 6 epochs 2,2,1,1 batches 7,7,7,6/1,1,1,0 val 0/2! steps 7/1
SystemExit
pending 1:2:8 samples 16 logged 7 epochs 2,2,1,1 batches 8,8,8,7/2,2,2,1 steps 8/2
best.ckpt 1:2:8 samples 16 logged 7 epochs 2,2,1,1 batches 8,8,8,7/2,2,2,1 val 2! steps 8/2
= last.ckpt 1:2:8 samples 16 logged 7 epochs 2,2,1,1 batches 8,8,8,7/2,2,2,1 steps 8/2

## max_time
last.ckpt 0:0:0
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above
pending 1:3:9 samples 24 logged 8 epochs 2,2,1,1 batches 9,9,9,8/3,3,3,2 steps 9/3
best.ckpt 1:3:9 samples 24 logged 8 epochs 2,2,1,1 batches 9,9,9,8/3,3,3,2 val 2! steps 9/3
= last.ckpt 1:3:9 samples 24 logged 8 epochs 2,2,1,1 batches 9,9,9,8/3,3,3,2 steps 9/3

## max_time in a window
last.ckpt 0:0:0
pending 0:4:1 samples 32 epochs 1,1,0,0 batches 4,4,4,3 steps 1
best.ckpt 0:4:1 samples 32 epochs 1,1,0,0 batches 4,4,4,3 val 2! steps 1
= last.ckpt 0:4:1 samples 32 epochs 1,1,0,0 batches 4,4,4,3 steps 1

## no batch in time
last.ckpt 0:0:0
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above
last.ckpt 1:2:8 samples 16 logged 7 epochs 2,2,1,1 batches 8,8,8,7/2,2,2,1 val 0/2! steps 8/2
TimeoutError

## no batch in time, windows
last.ckpt 0:0:0
TimeoutError

## early stopping
last.ckpt 0:0:0
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above
best.ckpt 2:0:12 logged 12 epochs 2 batches 12/6! val 2! steps 12/6
last.ckpt as above

## early stopping in an epoch
last.ckpt 0:0:0
best.ckpt 0:2:2 samples 16 logged 1 epochs 1,1,0,0 batches 2,2,2,1 val 2! steps 2
last.ckpt as above
best.ckpt 0:4:4 samples 32 logged 3 epochs 1,1,0,0 batches 4,4,4,3 val 4/2! steps 4
last.ckpt as above
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 6/2! steps 6
last.ckpt as above

## early stopping in a window
last.ckpt 0:0:0
best.ckpt 0:-:1 logged 1 epochs 1,1,0,0 batches 3 val 2! steps 1 cleared 2
best.ckpt 1:0:3 logged 3 epochs 1 batches 6! val 4/2! steps 3
last.ckpt as above
best.ckpt 1:-:4 logged 4 epochs 2,2,1,1 batches 9/3 val 2! steps 4/1 cleared 5/2
last.ckpt 2:-:4 logged 4 epochs 2 batches 9/3 val 2! steps 4/1 cleared 5/2

## resumed once
last.ckpt 0:0:0
last.ckpt 0:3:3 samples 24 logged 2 epochs 1,1,0,0 batches 3,3,3,2 steps 3
SystemExit
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above
best.ckpt 2:0:12 logged 12 epochs 2 batches 12/6! val 2! steps 12/6
last.ckpt as above

## resumed twice
last.ckpt 0:0:0
last.ckpt 0:3:3 samples 24 logged 2 epochs 1,1,0,0 batches 3,3,3,2 steps 3
SystemExit
last.ckpt 0:5:5 samples 40 logged 4 epochs 1,1,0,0 batches 5,5,5,4 steps 5
SystemExit
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above
best.ckpt 2:0:12 logged 12 epochs 2 batches 12/6! val 2! steps 12/6
last.ckpt as above

## resumed, and stopped before a step
last.ckpt 0:0:0
last.ckpt 0:3:3 samples 24 logged 2 epochs 1,1,0,0 batches 3,3,3,2 steps 3
SystemExit
last.ckpt 0:3:3 samples 24 logged 2 epochs 1,1,0,0 batches 3,3,3,2 steps 3
SystemExit
last.ckpt 0:3:3 samples 24 logged 2 epochs 1,1,0,0 batches 3,3,3,2 steps 3
SystemExit

## resumed at an epoch's start
last.ckpt 0:0:0
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above
SystemExit
last.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
SystemExit
last.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
best.ckpt 2:0:12 logged 12 epochs 2 batches 12/6! val 2! steps 12/6
last.ckpt as above

## resumed with smaller batches
last.ckpt 0:0:0
last.ckpt 0:4:4 samples 32 logged 3 epochs 1,1,0,0 batches 4,4,4,3 steps 4
SystemExit
last.ckpt 0:6:5 samples 36 logged 4 epochs 1,1,0,0 batches 6,6,6,5 steps 5
SystemExit

## resumed with larger batches
last.ckpt 0:0:0
last.ckpt 0:5:5 samples 40 logged 4 epochs 1,1,0,0 batches 5,5,5,4 steps 5
SystemExit
best.ckpt 1:0:6 logged 6 epochs 1 batches 4! val 2! steps 6
last.ckpt as above
SystemExit

## resumed after the end
last.ckpt 0:0:0
best.ckpt 1:0:6 logged 6 epochs 1 batches 6! val 2! steps 6
last.ckpt as above

## two optimizers
last.ckpt 0:0:0
last.ckpt 0:2:4 samples 16 logged 1 epochs 1,1,0,0 batches 2,2,2,1 manual 4
last.ckpt 0:3:6 samples 24 logged 2 epochs 1,1,0,0 batches 3,3,3,2 manual 6
SystemExit
last.ckpt 0:5:10 samples 40 logged 4 epochs 1,1,0,0 batches 5,5,5,4 manual 10
best.ckpt 1:0:12 logged 6 epochs 1 batches 6! manual 12 val 2!
last.ckpt as above
last.ckpt 1:2:16 samples 16 logged 7 epochs 2,2,1,1 batches 8,8,8,7/2,2,2,1 manual 16 val 0/2!
last.ckpt 1:4:20 samples 32 logged 9 epochs 2,2,1,1 batches 10,10,10,9/4,4,4,3 manual 20 val 0/2!
best.ckpt 2:0:24 logged 12 epochs 2 batches 12/6! manual 24 val 2!
last.ckpt as above
"""


def golden() -> dict[str, list[str]]:
    """Rows by the name of their event."""
    parts = [part.strip().splitlines() for part in GOLDEN.split("## ")[1:]]
    return {name: rows for name, *rows in parts}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVENTS)
def test_what_is_saved(tmp_path: Path, name: str) -> None:
    assert rows_of(EVENTS[name], tmp_path) == golden()[name]
