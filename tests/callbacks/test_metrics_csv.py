"""One row a step, whole at every moment, and continued by a resumed run."""

import csv
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from callbacks.learning_curves import draw_learning_curves
from callbacks.metrics_csv import MetricsCsv
from callbacks.single_label_pictures import draw_confusion_matrix
from callbacks.test_report import print_report
from tests.tiny import TinyImages, tiny_classifier, tiny_trainer


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_values_of_one_step_share_a_row(tmp_path: Path) -> None:
    log = MetricsCsv(tmp_path / "metrics.csv")
    log.log_metrics({"val/loss": 0.5, "epoch": 0}, step=9)
    log.log_metrics({"train/loss": 0.25, "epoch": 0}, step=9)
    log.log_metrics({"val/loss": 0.125, "epoch": 1}, step=19)
    log.save()
    assert rows_of(tmp_path / "metrics.csv") == [
        {"epoch": "0", "step": "9", "val/loss": "0.5", "train/loss": "0.25"},
        {"epoch": "1", "step": "19", "val/loss": "0.125", "train/loss": ""},
    ]


def test_a_resumed_run_goes_on_below(tmp_path: Path) -> None:
    """Rows after the checkpoint come again, so those of the stopped run go."""
    first = MetricsCsv(tmp_path / "metrics.csv")
    first.log_metrics({"a": 1.0}, step=1)
    state = first.state()
    first.log_metrics({"a": 9.0, "late": 1.0}, step=2)
    first.save()
    second = MetricsCsv(tmp_path / "metrics.csv")
    second.restore(state)
    second.log_metrics({"b": 2.0}, step=2)
    second.save()
    rows = rows_of(tmp_path / "metrics.csv")
    assert rows == [
        {"epoch": "", "step": "1", "a": "1", "b": ""},
        {"epoch": "", "step": "2", "a": "", "b": "2"},
    ]


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 999, b"\xff\n,\n", b"epoch,step,a\n0\n0,5\n1,2,3,4\n"]
)
def test_a_damaged_file_does_not_stop_a_resumed_run(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    log = MetricsCsv(path)
    log.log_metrics({"epoch": 2, "a": 0.5}, step=7)
    log.save()
    assert rows_of(path)[-1] == {"epoch": "2", "step": "7", "a": "0.5"}
    assert all(row["step"] for row in rows_of(path))


def test_values_survive_to_nine_digits(tmp_path: Path) -> None:
    log = MetricsCsv(tmp_path / "metrics.csv")
    log.log_metrics({"a": 0.123456789}, step=1)
    log.save()
    assert float(rows_of(tmp_path / "metrics.csv")[0]["a"]) == pytest.approx(0.123456789, abs=1e-9)


def test_a_run_leaves_a_row_an_epoch_with_everything(tmp_path: Path) -> None:
    data = TinyImages()
    log = MetricsCsv(tmp_path / "metrics.csv")
    trainer = tiny_trainer(tmp_path, logger=[log], max_epochs=3)
    trainer.fit(tiny_classifier(data), datamodule=data)
    rows = rows_of(tmp_path / "metrics.csv")
    assert [(row["epoch"], row["step"]) for row in rows] == [("0", "5"), ("1", "11"), ("2", "17")]
    assert all(row["train/loss"] and row["val/f1"] and row["lr"] for row in rows)


def test_pictures_and_table(tmp_path: Path, capsys) -> None:
    data = TinyImages()
    log = MetricsCsv(tmp_path / "metrics.csv")
    trainer = tiny_trainer(tmp_path, logger=[log], max_epochs=2)
    model = tiny_classifier(data)
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data, verbose=False)
    names = ["loss", "accuracy", "lr"]
    draw_learning_curves(tmp_path / "metrics.csv", tmp_path / "curves.png", names)
    report = model.reports["test"]
    draw_confusion_matrix(report.outcomes.confusion(), data.class_names, tmp_path / "confusion.png")
    for name in ("curves.png", "confusion.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    print_report(report, data.task)
    table = capsys.readouterr().out
    assert all(name in table for name in [*data.class_names, "macro mean", "test accuracy"])
    values = data.task.report_values(report)
    assert [row["support"] for row in values["classes"]] == [5, 5, 5]
    assert values["accuracy"] == report.scalars["accuracy"]


@pytest.mark.parametrize("epochs", [1, 2, 30])
def test_epochs_are_counted_in_whole_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    rows = [f"{epoch},{epoch},{1 / (epoch + 1)}" for epoch in range(epochs)]
    (tmp_path / "metrics.csv").write_text("\n".join(["epoch,step,val/loss", *rows]) + "\n")
    ticks: list[float] = []

    def note_ticks(figure: Figure, *_: object, **__: object) -> None:
        ticks.extend(tick for axes in figure.axes for tick in axes.get_xticks())

    monkeypatch.setattr(Figure, "savefig", note_ticks)
    draw_learning_curves(tmp_path / "metrics.csv", tmp_path / "curves.png", ["loss"])
    assert ticks
    assert all(tick == int(tick) for tick in ticks)
