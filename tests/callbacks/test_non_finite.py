"""Values that are not finite end a run at once, and never reach a checkpoint."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from callbacks.non_finite import NonFinite, NonFiniteError, are_finite, safer_precision
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer


class Breaks(pl.Callback):
    """Spoils what is named at the start of the third step."""

    def __init__(self, what: str) -> None:
        self.what = what

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        if trainer.global_step == 2 and self.what == "weight":
            with torch.no_grad():
                next(pl_module.parameters()).fill_(torch.nan)

    def on_before_optimizer_step(self, trainer, pl_module, optimizer) -> None:
        if trainer.global_step == 2 and self.what == "gradient":
            next(pl_module.parameters()).grad.flatten()[0] = torch.inf


@pytest.mark.parametrize("what", ["weight", "gradient"])
@pytest.mark.parametrize(("every", "seen_after"), [(1, 3), (1000, 6)])
def test_training_stops(tmp_path: Path, what: str, every: int, seen_after: int) -> None:
    data = TinyImages()
    watching = NonFinite(every_n_steps=every)
    trainer = tiny_trainer(tmp_path, callbacks=[Breaks(what), watching], max_epochs=5)
    with pytest.raises(NonFiniteError, match=r"became NaN or infinite in epoch 0") as caught:
        trainer.fit(tiny_classifier(data), datamodule=data)
    assert trainer.global_step == seen_after
    assert caught.value.between_steps == (2 if every == 1 else 0, seen_after)


def test_no_checkpoint_keeps_it(tmp_path: Path) -> None:
    data = TinyImages()
    checkpointing = Checkpointing(TinyRun(tmp_path), "2")
    callbacks = [NonFinite(every_n_steps=1000), checkpointing, Breaks("weight")]
    plugins = [AtomicCheckpointIO()]
    trainer = tiny_trainer(tmp_path, callbacks=callbacks, plugins=plugins, max_epochs=5)
    with pytest.raises(NonFiniteError):
        trainer.fit(tiny_classifier(data), datamodule=data)
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert last["global_step"] == 2
    assert are_finite(list(last["state_dict"].values())[2:4])


def test_one_rank_stops_all() -> None:
    decisions = []
    strategy = SimpleNamespace(
        reduce_boolean_decision=lambda found, all: decisions.append((found, all)) or True
    )
    state = {"current_epoch": 0, "global_step": 5, "scaler": None, "precision": "32-true"}
    state["lightning_module"] = None
    trainer: Any = SimpleNamespace(strategy=strategy, **state)
    module: Any = torch.nn.Linear(1, 1)
    with pytest.raises(NonFiniteError):
        NonFinite().look(trainer, module)
    assert decisions == [(False, False)]


@pytest.mark.parametrize(
    ("scales", "alarm"),
    [
        ([2.0**16, 2.0**15, 2.0**15, 2.0**14, 2.0**14, 2.0**13], False),  # single skips
        ([2.0**16, 2.0**17, 2.0**16], False),
        ([2.0**16, 2.0**6, 2.0**-4], True),  # twenty in a row, over two looks
        ([2.0**16, 2.0**6, 2.0**6, 2.0**-4], False),  # some steps succeeded between
    ],
)
def test_skipped_steps_of_a_gradient_scaler(scales: list[float], alarm: bool) -> None:
    watching = NonFinite()
    assert [watching.skips_too_often(scale) for scale in scales][-1] is alarm


@pytest.mark.parametrize(
    ("precision", "advice"),
    [
        ("32-true", ""),
        ("64-true", ""),
        ("bf16-mixed", ", or --precision 32-true instead of bf16-mixed"),
        ("bf16-true", ", or --precision bf16-mixed or 32-true instead of bf16-true"),
        ("16-mixed", ", or --precision bf16-mixed or 32-true instead of 16-mixed"),
        ("16-true", ", or --precision 16-mixed, bf16-true or 32-true instead of 16-true"),
    ],
)
def test_the_advice_names_a_short_precision(precision: str, advice: str) -> None:
    assert safer_precision(precision) == advice


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_one_value_is_enough(bad: float) -> None:
    tensors = [torch.zeros(3), torch.full((2, 2), 1e30), torch.ones(1)]
    assert are_finite(tensors)
    tensors[1][1, 0] = bad
    assert not are_finite(tensors)
