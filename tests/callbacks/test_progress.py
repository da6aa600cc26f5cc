"""One line an epoch where output is piped, a bar where a person watches."""

import io
from pathlib import Path

from rich.console import Console

from callbacks.progress import EpochProgress, epoch_line
from tests.callbacks.test_other_batches import fit as resumed_fit
from tests.tiny import TinyImages, tiny_classifier, tiny_trainer


def fit(folder: Path, progress: EpochProgress) -> None:
    data = TinyImages()
    trainer = tiny_trainer(folder, callbacks=[progress], max_epochs=2, enable_progress_bar=True)
    trainer.fit(tiny_classifier(data), datamodule=data)
    trainer.test(tiny_classifier(data), datamodule=data, verbose=False)


def test_the_line_shows_what_was_logged() -> None:
    metrics = {"train/loss": 0.5, "val/accuracy": 0.98765, "lr": 0.00123}
    names = ["train/loss", "val/loss", "val/accuracy", "lr"]
    assert epoch_line(3, 15, metrics, 2.06, names) == (
        "epoch 3/15  train/loss 0.5000  val/accuracy 0.9877  lr 1.23e-03  2.1 s"
    )
    assert epoch_line(3, -1, {}, 1, names) == "epoch 3  1.0 s"


def test_piped_output_is_one_line_an_epoch(tmp_path: Path, capsys) -> None:
    fit(tmp_path, EpochProgress())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert all("val/accuracy" in line and "train/loss" in line for line in lines)


def test_an_epoch_without_a_validation_does_not_repeat_the_last_one(tmp_path: Path, capsys) -> None:
    data = TinyImages()
    trainer = tiny_trainer(
        tmp_path,
        callbacks=[EpochProgress()],
        max_epochs=4,
        check_val_every_n_epoch=2,
        enable_progress_bar=True,
    )
    trainer.fit(tiny_classifier(data), datamodule=data)
    lines = capsys.readouterr().out.splitlines()
    assert ["val/" in line for line in lines] == [False, True, False, True]
    assert all("train/loss" in line for line in lines)


def test_the_rest_of_an_epoch_that_goes_on_takes_its_own_seconds(tmp_path: Path, capsys) -> None:
    resumed_fit(tmp_path, 3, 8, others=[EpochProgress()], enable_progress_bar=True)
    capsys.readouterr()
    resumed_fit(tmp_path, None, 8, others=[EpochProgress()], enable_progress_bar=True)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "epoch 1/4" in line)
    assert 0 <= float(line.split()[-2]) < 60  # not since the machine was started


def test_a_terminal_gets_a_bar_and_the_lines(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("callbacks.progress.REDRAW_SECONDS", 0.0)
    screen = io.StringIO()
    progress = EpochProgress()
    progress.console = Console(file=screen, force_terminal=True, width=120, soft_wrap=True)
    fit(tmp_path, progress)
    shown = screen.getvalue()
    assert "6/6" in shown
    assert "validating" in shown
    assert "testing" in shown
    assert shown.count("val/accuracy") == 2
    assert progress.bar is None


def test_other_ranks_are_silent(tmp_path: Path, capsys) -> None:
    progress = EpochProgress()
    progress.disable()
    progress.print("anything")
    assert capsys.readouterr().out == ""
