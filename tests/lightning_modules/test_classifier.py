"""The training logic: true means over accumulation windows, exact epoch metrics, checkpoints."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from torch.utils.data import DataLoader, TensorDataset

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from callbacks.early_stopping import EarlyStopping
from callbacks.learning_curves import LearningCurves
from callbacks.metrics_csv import MetricsCsv
from callbacks.progress import EpochProgress
from callbacks.test_report import TestReport
from lightning_modules import outcome_buffer
from lightning_modules.deployed import load_deployed
from tasks import single_label_metrics as metrics
from tasks.single_label import SingleLabel
from tasks.single_label_outcomes import Outcomes
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer

SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
NO_NORM = {"width": 4, "dropout": 0.0}


def weights_after(data: TinyImages, folder: Path, **trainer_arguments) -> dict[str, torch.Tensor]:
    model = tiny_classifier(data, optimizer=SGD, model=NO_NORM)
    for stage in model.model.network.stages:
        stage[1] = torch.nn.Identity()  # batch statistics depend on how samples are batched
    tiny_trainer(folder, **trainer_arguments).fit(model, datamodule=data)
    return dict(model.state_dict())


@pytest.mark.parametrize(("num_train", "window"), [(48, 3), (40, 3), (45, 4), (44, 2)])
def test_an_accumulated_step_is_the_step_of_one_large_batch(
    tmp_path: Path, num_train: int, window: int
) -> None:
    """Also for an epoch's last, shorter window and a last, smaller batch."""
    small = TinyImages(batch_size=8, num_train=num_train)
    large = TinyImages(batch_size=8 * window, num_train=num_train)
    accumulated = weights_after(small, tmp_path, accumulate_grad_batches=window)
    whole = weights_after(large, tmp_path)
    for name, value in whole.items():
        torch.testing.assert_close(accumulated[name], value, msg=name)


def test_limited_epochs_scale_their_last_window_too(tmp_path: Path) -> None:
    accumulated = weights_after(
        TinyImages(batch_size=8), tmp_path, accumulate_grad_batches=4, limit_train_batches=2
    )
    whole = weights_after(TinyImages(batch_size=16), tmp_path, limit_train_batches=1)
    torch.testing.assert_close(accumulated, whole)


class SeesMetrics(pl.Callback):
    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.epochs.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def test_every_announced_metric_is_there_at_the_epochs_end(tmp_path: Path) -> None:
    data, seen = TinyImages(), SeesMetrics()
    model = tiny_classifier(data)
    tiny_trainer(tmp_path, callbacks=[seen], max_epochs=2).fit(model, datamodule=data)
    assert set(model.metric_names) | {"lr"} == set(seen.epochs[0]) == set(seen.epochs[1])
    assert seen.epochs[1]["train/loss"] < seen.epochs[0]["train/loss"]


def test_training_metrics_of_an_epoch_cut_short(tmp_path: Path) -> None:
    data, seen = TinyImages(), SeesMetrics()
    trainer = tiny_trainer(tmp_path, callbacks=[seen], max_steps=3)
    trainer.fit(tiny_classifier(data), datamodule=data)
    assert seen.epochs[0]["train/loss"] > 0


@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_evaluation_counts_every_sample_once(tmp_path: Path, batch_size: int) -> None:
    data = TinyImages(batch_size=batch_size)
    model = tiny_classifier(data)
    trainer = tiny_trainer(tmp_path)
    trainer.test(model, datamodule=data, verbose=False)
    reference = TinyImages(batch_size=15)
    other = tiny_classifier(reference)
    tiny_trainer(tmp_path).test(other, datamodule=reference, verbose=False)
    assert model.reports["test"].outcomes.num_samples == 15
    assert model.reports["test"].scalars == pytest.approx(other.reports["test"].scalars)
    pairs, others = (m.reports["test"].outcomes.pairs() for m in (model, other))
    np.testing.assert_array_equal(pairs, others)


def test_the_sanity_check_leaves_no_counts(tmp_path: Path) -> None:
    data = TinyImages()
    model = tiny_classifier(data)
    tiny_trainer(tmp_path, num_sanity_val_steps=2).fit(model, datamodule=data)
    assert model.reports["val"].outcomes.num_samples == 15


def test_the_plateau_really_lowers_the_rate(tmp_path: Path) -> None:
    data = TinyImages()
    schedule = {"name": "plateau", "warmup": 0.0, "patience": 0, "min_delta": 0.9}
    model = tiny_classifier(data, schedule=schedule | {"reduce_factor": 0.5})
    trainer = tiny_trainer(tmp_path, max_epochs=4)
    trainer.fit(model, datamodule=data)
    assert trainer.optimizers[0].param_groups[0]["lr"] < 1e-2


def test_the_plateau_goes_by_the_metric_that_is_asked_for(tmp_path: Path) -> None:
    data = TinyImages()
    schedule = {"name": "plateau", "warmup": 0.0, "patience": 0, "monitor": "val/accuracy"}
    trainer = tiny_trainer(tmp_path, max_epochs=2)
    model = tiny_classifier(data, schedule=schedule)
    trainer.fit(model, datamodule=data)
    (found,) = (config.scheduler for config in trainer.lr_scheduler_configs)
    assert found.mode == "max"
    assert 0 < found.best_loss <= 1
    wrong = tiny_classifier(data, schedule=schedule | {"monitor": "val/acuracy"})
    with pytest.raises(ValueError, match=r"--schedule\.monitor val/acuracy: nothing logs"):
        tiny_trainer(tmp_path).fit(wrong, datamodule=data)


def share_of_sure(outcomes: Outcomes) -> float:
    """A metric of a fork's own."""
    return float((outcomes.confidences > 0.5).mean())


def test_a_metric_of_a_fork_is_one_function_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name for every monitor, and in the progress line, the table, the plots and the report."""
    monkeypatch.setitem(metrics.METRICS, "sure", share_of_sure)
    monkeypatch.setattr(SingleLabel, "smaller_is_better", metrics.SMALLER_IS_BETTER | {"sure"})
    data, stopping = TinyImages(), EarlyStopping(monitor="val/sure", patience=9)
    run = TinyRun(tmp_path)
    checkpointing = Checkpointing(run, monitor="val/sure")
    log, report = MetricsCsv(tmp_path / "metrics.csv"), TestReport(run)
    curves, drawn = LearningCurves(run), []

    def note_titles(figure: Figure, *_: object, **__: object) -> None:
        drawn.extend(axes.get_title() for axes in figure.axes)

    monkeypatch.setattr(Figure, "savefig", note_titles)
    model = tiny_classifier(data, schedule={"name": "plateau", "monitor": "val/sure"})
    trainer = tiny_trainer(
        tmp_path,
        callbacks=[stopping, checkpointing, EpochProgress(), report, curves],
        logger=[log],
        enable_progress_bar=True,
        plugins=[AtomicCheckpointIO()],
        max_epochs=2,
    )
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data, verbose=False)
    assert stopping.mode == checkpointing.mode == "min"
    best = torch.load(tmp_path / "best.ckpt", weights_only=True)
    assert best["description"]["scores"]["val/sure"] == pytest.approx(float(stopping.best_score))
    printed = capsys.readouterr().out
    assert printed.count("  val/sure 0.") == 2
    assert "  sure 0." in printed  # of the test
    assert {"train/sure", "val/sure"} <= log.rows[0].keys()
    values = json.loads((tmp_path / "test.json").read_text())
    assert values["sure"] == model.reports["test"].scalars["sure"]
    assert {"loss", "sure", "learning rate"} <= set(drawn)


def test_scores_that_are_too_many_are_said_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = TinyImages()
    monkeypatch.setattr(outcome_buffer, "MAX_SCORES", 15 * 3)
    model = tiny_classifier(data)
    tiny_trainer(tmp_path).fit(model, datamodule=data)
    assert model.reports["val"].outcomes.scores.shape == (15, 3)
    assert "without val/auroc" not in capsys.readouterr().out
    monkeypatch.setattr(outcome_buffer, "MAX_SCORES", 15 * 3 - 1)
    model = tiny_classifier(data)
    tiny_trainer(tmp_path, max_epochs=2).fit(model, datamodule=data)
    text = r"15 samples x 3 outputs \(at most 44 scores are kept\)"
    assert len(re.findall(f"without val/auroc: {text}", capsys.readouterr().out)) == 1
    assert "auroc" not in model.reports["val"].scalars
    stopping = EarlyStopping(monitor="val/auroc")
    trainer = tiny_trainer(tmp_path, callbacks=[stopping])
    with pytest.raises(ValueError, match=f"val/auroc cannot be monitored with {text}"):
        trainer.fit(tiny_classifier(data), datamodule=data)
    assert trainer.global_step == 0


def test_a_new_rate_reaches_the_optimizer(tmp_path: Path) -> None:
    class SetsRate(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            pl_module.set_base_lr(0.25)

    data = TinyImages()
    trainer = tiny_trainer(tmp_path, callbacks=[SetsRate()])
    trainer.fit(tiny_classifier(data), datamodule=data)
    assert {group["lr"] for group in trainer.optimizers[0].param_groups} == {0.25}


def test_a_checkpoint_rebuilds_the_model_in_itself(tmp_path: Path) -> None:
    data = TinyImages()
    model = tiny_classifier(data)
    trainer = tiny_trainer(tmp_path)
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    checkpoint = torch.load(tmp_path / "a.ckpt", weights_only=True)
    images = data.example_batch()[0]["images"]
    assert torch.equal(load_deployed(checkpoint)(images), model.eval().model(images))
    scores = checkpoint["description"]["scores"]
    assert scores["val/accuracy"] == pytest.approx(model.reports["val"].scalars["accuracy"])
    assert checkpoint["description"]["global_step"] == 6


def test_an_endless_training_needs_an_end_for_its_schedule(tmp_path: Path) -> None:
    data = TinyImages()
    trainer = tiny_trainer(tmp_path, max_epochs=-1)
    with pytest.raises(ValueError, match="give --max_epochs or --max_steps"):
        trainer.fit(tiny_classifier(data), datamodule=data)


def test_a_plain_loader_of_a_fork_trains_too(tmp_path: Path) -> None:
    data = TinyImages()
    split = data.splits.train
    dataset = TensorDataset(torch.from_numpy(split.images), torch.from_numpy(split.targets))
    model = tiny_classifier(data)
    trainer = tiny_trainer(tmp_path)
    trainer.fit(model, DataLoader(dataset, batch_size=8), data.val_dataloader())
    assert trainer.global_step == 6
