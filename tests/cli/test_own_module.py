"""Which LightningModule trains: chosen by name or import path, built with what it asks for."""

from collections.abc import Callable
from typing import Any

import pytest
import pytorch_lightning as pl
from torch import nn

from cli.own_module import (
    PROVIDED,
    asked_by,
    build_module,
    module_class,
    not_asked_for,
    untested_line,
)
from lightning_modules.classifier import Classifier
from train import main

HERE = "tests.cli.test_own_module"
SETTINGS = {"allow_external_code": True, "accumulate_grad_batches": 1, "gradient_clip_val": None}


class NoModule:
    """No LightningModule."""


class OnlyTrains(pl.LightningModule):
    def training_step(self, *_: Any) -> None: ...


class Whole(OnlyTrains):
    """Asks for the network, and has a flag."""

    def __init__(self, model: nn.Module, depth: int = 3, by_itself: bool = False) -> None:
        super().__init__()
        self.model = model
        self.depth = depth
        self.automatic_optimization = not by_itself

    def configure_optimizers(self) -> None: ...


class Above(Whole):
    """Hands on what it does not name."""

    def __init__(self, *arguments: Any, temperature: float = 1.0, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.temperature = temperature


def test_ours_asks_for_all_that_there_is() -> None:
    assert module_class("classifier") is Classifier
    assert asked_by(Classifier) >= PROVIDED


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{HERE}.NoModule", "'.*NoModule' is no pytorch_lightning.LightningModule"),
        (f"{HERE}.OnlyTrains", "'.*OnlyTrains' has no configure_optimizers, which train a module"),
        (
            "pytorch_lightning.LightningModule",
            "has no training_step and no configure_optimizers, which train a module",
        ),
        (f"{HERE}.Nothing", "cannot import '.*Nothing'"),
        (f"{HERE}.HERE", "is not a class"),
    ],
)
def test_what_is_no_module_is_one_message(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=message):
        module_class(name, allow_external_code=True)
    assert main(["--module", name, "--allow_external_code"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --module: ")


def test_code_from_elsewhere_needs_permission(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--module", f"{HERE}.Whole"]) == 2
    assert "to run code from elsewhere add --allow_external_code" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("chosen", "arguments", "facts"),
    [
        ("Whole", {"depth": 5}, {"depth": 5}),
        ("Above", {"depth": 5, "temperature": 2.0}, {"depth": 5, "temperature": 2.0}),
    ],
)
def test_it_is_built_with_what_it_asks_for(
    chosen: str, arguments: dict[str, Any], facts: dict[str, Any]
) -> None:
    configuration = SETTINGS | {"module": {"name": f"{HERE}.{chosen}", **arguments}}
    network = nn.Linear(1, 1)
    module = build_module(configuration, {"model": network, "criterion": None, "description": {}})
    assert type(module).__name__ == chosen
    assert {name: getattr(module, name) for name in facts} == facts
    assert module.model is network


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"accumulate_grad_batches": 2}, "--accumulate_grad_batches 2 out"),
        ({"gradient_clip_val": 0.5}, "--gradient_clip_val 0.5 out"),
        ({"gradient_clip_val": 0}, None),
    ],
)
def test_what_lightning_does_only_where_it_optimizes(
    changes: dict[str, Any], named: str | None
) -> None:
    module = {"name": f"{HERE}.Whole", "by_itself": True}
    build: Callable[[], Any] = lambda: build_module(  # noqa: E731
        SETTINGS | {"module": module} | changes, {"model": nn.Linear(1, 1)}
    )
    if named is None:
        assert not build().automatic_optimization
        return
    with pytest.raises(ValueError, match=f"Whole optimizes by itself .*: leave {named}"):
        build()


def test_settings_of_parts_that_it_does_not_ask_for_are_named() -> None:
    names = ["model.width", "model.checkpoint_activations", "loss.name", "optimizer.lr", "seed"]
    given = dict.fromkeys(names)
    assert not_asked_for(Classifier, given) == []
    (line,) = not_asked_for(Whole, given)
    assert line == (
        "without effect, as Whole does not ask for it: --model.checkpoint_activations, "
        "--loss.name, --optimizer.lr"
    )


def test_a_flag_without_effect_is_named_and_its_default_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = ["--module", f"{HERE}.Whole", "--allow_external_code", "--print_config"]
    with pytest.raises(SystemExit):
        main([*own, "--optimizer.lr", "0.1", "--optimizer.name", "adamw"])
    line = "# without effect, as Whole does not ask for it: --optimizer.lr\n"
    assert line in capsys.readouterr().out


def test_a_module_without_a_test_step_is_named() -> None:
    assert untested_line(Whole(nn.Linear(1, 1))) == "no test, Whole has no test_step"


def test_flags_come_from_the_constructor(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--module", f"{HERE}.Above", "--allow_external_code"]
    for arguments, code, text in (
        ([*own, "--module.temperature", "2", "--module.depth", "4", "--print_config"], 0, None),
        (["--module", "help"], 0, "classifier  The training logic around a deployable module"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == code
        printed = capsys.readouterr().out
        wanted = text or f"module:\n  name: {HERE}.Above\n  temperature: 2.0\n  depth: 4\n"
        assert wanted in printed
    assert main([*own, "--module.temprature", "2", "--module.model", "x"]) == 2
    wrong = capsys.readouterr().err
    assert "unknown setting --module.temprature; did you mean --module.temperature?" in wrong
    assert "unknown setting --module.model" in wrong
