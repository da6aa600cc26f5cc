"""A misspelt name is found before training, or when a module's first validation has ended."""

from types import SimpleNamespace
from typing import Any

import pytest

from callbacks.logged_names import MonitoredName
from tests.tiny import TinyImages, tiny_classifier


class Mine:
    """Announces nothing."""


def asked(name: str, *logged: str, usual: str = "val/loss") -> tuple[MonitoredName, Any]:
    said: list[str] = []
    trainer = SimpleNamespace(
        callback_metrics=dict.fromkeys(logged), lightning_module=Mine(), print=said.append
    )
    return MonitoredName("early_stopping", name, usual), trainer


@pytest.mark.parametrize(
    ("name", "better"),
    [("val/loss", "min"), ("val/word_error_rate", "min"), ("val/iou", "max"), ("hits", "max")],
)
def test_a_name_tells_which_values_are_better(name: str, better: str) -> None:
    assert MonitoredName("checkpoint", name, "val/loss").better(Mine()) == better  # type: ignore[arg-type]


def test_a_module_that_announces_names_is_asked_at_once() -> None:
    module = tiny_classifier(TinyImages())
    name = MonitoredName("checkpoint", "val/calibration_error", "val/accuracy")
    assert name.better(module) == "min"
    assert name.is_logged(None, "min", "")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"--checkpoint\.monitor val/acc: .*did you mean"):
        MonitoredName("checkpoint", "val/acc", "val/accuracy").better(module)


def test_a_name_that_was_not_logged_is_one_message_with_the_nearest() -> None:
    name, trainer = asked("val/iuo", "val/iou", "val/loss")
    name.better(trainer.lightning_module)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        name.is_logged(trainer, "min", "early stopping: off")
    assert str(caught.value) == (
        "--early_stopping.monitor val/iuo: Mine has not logged that name by the end of its first "
        "validation; did you mean val/iou? (logged: val/iou, val/loss)"
    )


def test_the_usual_name_may_be_absent_and_that_is_said_once() -> None:
    name, trainer = asked("val/loss")
    said: list[str] = []
    trainer.print = said.append
    name.better(trainer.lightning_module)
    assert [name.is_logged(trainer, "min", "early stopping: off") for _ in range(2)] == [
        False,
        False,
    ]
    assert said == [
        "early stopping: off, Mine logs no val/loss (--early_stopping.monitor NAME; logged: "
        "nothing)"
    ]


def test_a_name_that_is_logged_is_not_looked_for_again() -> None:
    name, trainer = asked("val/iou", "val/iou")
    name.better(trainer.lightning_module)
    said: list[str] = []
    trainer.print = said.append
    assert name.is_logged(trainer, "max", "")
    trainer.callback_metrics = {}
    assert name.is_logged(trainer, "max", "")
    assert said == ["early stopping: by val/iou, larger is better"]
