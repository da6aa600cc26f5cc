"""What a checkpoint says of its run, whatever module trains: the scores of these very weights."""

from types import SimpleNamespace
from typing import Any

import torch

from callbacks.described import Described


def trainer_at(step: int, **logged: float) -> Any:
    return SimpleNamespace(
        sanity_checking=False,
        global_step=step,
        callback_metrics={name: torch.tensor(value) for name, value in logged.items()},
        lightning_module=SimpleNamespace(automatic_optimization=True),
        fit_loop=SimpleNamespace(
            epoch_progress=SimpleNamespace(current=SimpleNamespace(started=3))
        ),
        state=SimpleNamespace(fn="fit"),
    )


def saved(part: Described, trainer: Any) -> dict[str, Any]:
    checkpoint: dict[str, Any] = {}
    part.on_save_checkpoint(trainer, None, checkpoint)  # type: ignore[arg-type]
    return checkpoint["description"]


def test_scores_are_those_of_the_saved_weights_or_none() -> None:
    part = Described({"network": "mine"})
    validated = trainer_at(8, **{"val/loss": 0.5, "train/loss": 0.25})
    part.on_validation_end(validated, None)  # type: ignore[arg-type]
    at_once = {"network": "mine", "epoch": 2, "global_step": 8, "scores": {"val/loss": 0.5}}
    assert saved(part, validated) == at_once
    assert saved(part, trainer_at(9))["scores"] == {}


def test_a_resumed_run_knows_the_scores_of_its_checkpoint() -> None:
    part, trainer = Described({}), trainer_at(8)
    stored = {"description": {"scores": {"val/loss": 0.5}, "global_step": 8}}
    part.on_load_checkpoint(trainer, None, stored)  # type: ignore[arg-type]
    assert saved(part, trainer)["scores"] == {"val/loss": 0.5}
    assert saved(part, trainer_at(9))["scores"] == {}


def test_a_validation_before_training_counts_for_nothing() -> None:
    part, trainer = Described({}), trainer_at(0, **{"val/loss": 0.5})
    trainer.sanity_checking = True
    part.on_validation_end(trainer, None)  # type: ignore[arg-type]
    assert saved(part, trainer)["scores"] == {}
