"""What is best, what is kept, and going on from it."""

from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from tests.tiny import TinyImages, tiny_classifier, tiny_trainer


def bound(folder: Path, **arguments) -> Checkpointing:
    checkpointing = Checkpointing(**arguments)
    checkpointing.bind(folder)
    return checkpointing


def fit(folder: Path, checkpointing: Checkpointing, resume=None, others=(), **arguments):
    data = TinyImages()
    model = tiny_classifier(data, schedule={"name": "cosine"})
    trainer = tiny_trainer(
        folder,
        callbacks=[checkpointing, *others],
        plugins=[AtomicCheckpointIO()],
        enable_checkpointing=True,
        **arguments,
    )
    trainer.fit(model, datamodule=data, ckpt_path=resume)
    return trainer, model


@pytest.mark.parametrize(
    ("monitor", "better", "worse"),
    [
        ("val/accuracy", {"val/accuracy": 0.9, "val/loss": 9.0}, {"val/accuracy": 0.8}),
        ("val/loss", {"val/loss": 0.1}, {"val/loss": 0.2}),
        (
            "val/accuracy",
            {"val/accuracy": 0.9, "val/loss": 0.1},
            {"val/accuracy": 0.9, "val/loss": 0.2},
        ),
        ("val/loss", {"val/loss": 5.0}, {"val/loss": float("nan")}),
    ],
)
def test_what_is_better(monitor: str, better: dict, worse: dict) -> None:
    checkpointing = Checkpointing(monitor=monitor)
    assert checkpointing.ranking(better) > checkpointing.ranking(worse)


def test_best_and_last_are_written_and_foreign_files_stay(tmp_path: Path) -> None:
    (tmp_path / "foreign.ckpt").write_text("mine")
    trainer, model = fit(tmp_path, bound(tmp_path, monitor="val/loss"), max_epochs=3)
    assert sorted(path.name for path in tmp_path.glob("*")) == [
        "best.ckpt",
        "foreign.ckpt",
        "last.ckpt",
    ]
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert last["epoch"] == 2
    for name, value in model.state_dict().items():
        assert torch.equal(last["state_dict"][name], value)


def test_the_best_is_kept_when_training_gets_worse(tmp_path: Path) -> None:
    """The rate explodes in the last epoch; the exported and tested weights are those before."""

    class Explodes(Checkpointing):
        def on_train_epoch_start(self, trainer, pl_module) -> None:
            if trainer.current_epoch == 2:
                for group in trainer.optimizers[0].param_groups:
                    group["lr"] = 1e3
                trainer.lr_scheduler_configs[0].scheduler.base_lrs = [1e3, 1e3]

    checkpointing = Explodes(monitor="val/loss")
    checkpointing.bind(tmp_path)
    fit(tmp_path, checkpointing, max_epochs=3)
    best = torch.load(tmp_path / "best.ckpt", weights_only=True)
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert best["epoch"] < 2 == last["epoch"]
    assert best["description"]["scores"]["val/loss"] < last["description"]["scores"]["val/loss"]
    assert checkpointing.best_path == tmp_path / "best.ckpt"


class StopsAfterTwo(pl.Callback):
    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.should_stop = trainer.current_epoch == 1


def test_going_on_equals_never_having_stopped(tmp_path: Path) -> None:
    """Stopped after 2 epochs and resumed to 4: same steps, same rates, same weights."""
    whole, whole_model = fit(tmp_path, bound(tmp_path / "whole"), max_epochs=4)
    half, _ = fit(tmp_path, bound(tmp_path / "half"), max_epochs=4, others=[StopsAfterTwo()])
    assert half.current_epoch == 2
    last = tmp_path / "half" / "last.ckpt"
    resumed, resumed_model = fit(tmp_path, bound(tmp_path / "half"), resume=last, max_epochs=4)
    assert resumed.global_step == whole.global_step == 24
    rates = [trainer.optimizers[0].param_groups[0]["lr"] for trainer in (resumed, whole)]
    assert rates[0] == rates[1]
    for name, value in whole_model.state_dict().items():
        assert torch.equal(resumed_model.state_dict()[name], value), name


def test_without_validation_the_last_is_the_best(tmp_path: Path) -> None:
    checkpointing = bound(tmp_path)
    fit(tmp_path, checkpointing, limit_val_batches=0)
    assert checkpointing.best_path == tmp_path / "last.ckpt"


def test_a_misspelt_metric_is_found_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--checkpoint.monitor acc: .*; did you mean"):
        fit(tmp_path, bound(tmp_path, monitor="acc"))
