"""Weights & Biases without an account: offline, never a prompt, one run, failures marked."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from callbacks import wandb_report
from callbacks.wandb_report import WandbReport, build_wandb_logger, has_key
from lightning_modules.losses import single_label_outcomes
from lightning_modules.outcome_buffer import OutcomeBuffer
from tasks import outcomes
from tasks.single_label import SingleLabel
from tests.exporters.small_manifest import make_bundle
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer

ROOT = Path(__file__).resolve().parents[2]


class FakeRun:
    """Remembers what it is told."""

    id = "abc"

    def __init__(self) -> None:
        self.logged: dict[str, Any] = {}
        self.artifacts: list[Any] = []
        self.exit_code: int | None = None
        self.metrics: list[str] = []
        self.is_preempted = False

    def define_metric(self, name: str, **_: Any) -> None:
        self.metrics.append(name)

    def mark_preempting(self) -> None:
        assert self.exit_code is None
        self.is_preempted = True

    def log(self, values: dict[str, Any]) -> None:
        self.logged |= values

    def log_artifact(self, artifact: Any) -> None:
        self.artifacts.append(artifact)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def report(tmp_path: Path) -> WandbReport:
    part = WandbReport(TinyRun(tmp_path))
    part.run = FakeRun()
    return part


def test_a_key_is_found_in_environment_and_netrc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert not has_key()
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    assert has_key()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert not has_key()
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert has_key()


def test_predictions_and_confusion_matrix_are_logged(report: WandbReport, tmp_path: Path) -> None:
    data, run = TinyImages(), report.run
    model = tiny_classifier(data)
    tiny_trainer(tmp_path, callbacks=[report]).test(model, datamodule=data, verbose=False)
    table = run.logged["test/predictions"]
    assert len(table.data) == 15
    assert table.columns == ["true", "predicted", "probability"]
    confusion = [row[1:] for row in run.logged["test/confusion_matrix"].data]
    assert confusion == model.reports["test"].outcomes.confusion().tolist()


def test_of_many_classes_only_mistakes_are_logged(report: WandbReport) -> None:
    targets, predictions = torch.tensor([0, 0, 7, 150]), torch.tensor([9, 9, 8, 150])
    task = SingleLabel([f"class {index}" for index in range(200)])
    buffer = OutcomeBuffer(task.row, 200)
    logits = torch.nn.functional.one_hot(predictions, 200).float()
    buffer.add(single_label_outcomes(logits, targets, torch.ones(4)))
    found = outcomes.report(task, *buffer.collect(torch.device("cpu")))
    module: Any = SimpleNamespace(reports={"test": found}, task=task)
    report.on_test_end(SimpleNamespace(), module)  # type: ignore[arg-type]
    table = report.run.logged["test/confusion_matrix"]
    assert table.columns == ["true class", "predicted class", "samples"]
    assert table.data == [["class 0", "class 9", 2], ["class 7", "class 8", 1]]


def test_samples_leave_the_machine_only_when_asked(tmp_path: Path) -> None:
    part = WandbReport(TinyRun(), log_samples=True)
    part.run = FakeRun()
    data, run = TinyImages(), part.run
    trainer = tiny_trainer(tmp_path, callbacks=[part])
    trainer.test(tiny_classifier(data), datamodule=data, verbose=False)
    table = run.logged["test/predictions"]
    assert table.columns[-1] == "sample"
    assert type(table.data[0][-1]).__name__ == "Image"


def test_a_run_that_raised_is_marked_failed(report: WandbReport, tmp_path: Path) -> None:
    class Breaks(pl.Callback):
        def on_train_batch_start(self, *arguments: Any) -> None:
            raise RuntimeError("broken")

    data, run = TinyImages(), report.run
    trainer = tiny_trainer(tmp_path, callbacks=[report, Breaks()])
    with pytest.raises(RuntimeError, match="broken"):
        trainer.fit(tiny_classifier(data), datamodule=data)
    assert run.exit_code == 1
    assert not run.is_preempted


@pytest.mark.parametrize("code", [130, 143])
def test_a_run_that_was_asked_to_stop_is_not_failed_but_preempted(
    report: WandbReport, tmp_path: Path, code: int
) -> None:
    class Stops(pl.Callback):
        def on_train_batch_start(self, *arguments: Any) -> None:
            raise SystemExit(code)

    data, run = TinyImages(), report.run
    trainer = tiny_trainer(tmp_path, callbacks=[report, Stops()])
    with pytest.raises(SystemExit):
        trainer.fit(tiny_classifier(data), datamodule=data)
    assert run.is_preempted
    assert run.exit_code == code


TEXTS = "W&B does not get the exported bundle, which holds words of the texts"
IMAGES = "W&B gets the exported bundle"


@pytest.mark.parametrize(
    ("files", "log_bundle", "uploaded", "said"),
    [
        ({"tokenizer.json": "words"}, "auto", False, TEXTS),
        ({}, "auto", True, IMAGES),
        ({"tokenizer.json": "words"}, "on", True, IMAGES),
        ({}, "on", True, IMAGES),
        ({"tokenizer.json": "words"}, "off", False, None),
        ({}, "off", False, None),
    ],
)
def test_the_bundle_becomes_an_artifact_unless_it_holds_texts(
    tmp_path: Path, files: dict[str, str], log_bundle: Any, uploaded: bool, said: str | None
) -> None:
    """Said before training; of the folder only what is the bundle's is uploaded."""
    bundle = make_bundle(tmp_path / "export")
    (bundle / "answers.csv").write_text("mine")
    (bundle / "rejected" / "pt2").mkdir(parents=True)
    (bundle / "rejected" / "pt2" / "model.pt2").write_text("bad")
    part, run, lines = WandbReport(TinyRun(), log_bundle=log_bundle), FakeRun(), []
    trainer: Any = SimpleNamespace(
        loggers=[], is_global_zero=True, fast_dev_run=False, print=lines.append
    )
    module: Any = SimpleNamespace(
        description={"files": files}, deployed=None, reports={}, task=None
    )
    part.setup(trainer, module, "fit")
    part.on_fit_start(trainer, module)
    assert lines == []  # another logger: nothing leaves the machine
    part.run = run
    part.on_fit_start(trainer, module)
    assert len(lines) == (said is not None)
    assert said is None or lines[0].startswith(said)
    part.upload(bundle)
    part.upload(tmp_path / "none")
    assert len(run.artifacts) == uploaded
    if uploaded:
        manifest = json.loads((bundle / "manifest.json").read_text())
        entries = set(run.artifacts[0].manifest.entries)
        assert entries == {"manifest.json", *manifest["files"]}


def test_no_setting_is_passed_that_wandb_warns_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """wandb's own check of its settings prints a warning for each that it no longer knows."""
    import wandb

    given: dict[str, Any] = {}
    logger = fake_logger(monkeypatch, tmp_path, given)
    renamed = {"group": "run_group", "name": "run_name", "id": "run_id", "dir": "root_dir"}
    wandb.Settings(**{renamed.get(key, key): value for key, value in given.items()})
    output = capsys.readouterr()
    assert output.out + output.err == ""
    assert given["mode"] == "offline"
    assert given["id"] == tmp_path.name
    assert logger.experiment.id == "abc"
    assert logger.version == "abc"
    assert logger.experiment.metrics == ["trainer/global_step", "*"]


def fake_logger(monkeypatch: pytest.MonkeyPatch, folder: Path, given: dict[str, Any]) -> Any:
    """The logger of a run that is not started; `given` receives what wandb.init is called with."""
    import wandb

    def init(**arguments: Any) -> FakeRun:
        given.update(arguments)
        return FakeRun()

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setenv("NETRC", str(folder / "none"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    return build_wandb_logger(folder, "project", "experiment")


def test_other_ranks_start_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wandb_report.rank_zero_only, "rank", 1)
    given: dict[str, Any] = {}
    assert fake_logger(monkeypatch, tmp_path, given)._experiment is None
    assert given == {}


def test_idle_with_another_logger(tmp_path: Path) -> None:
    data, part = TinyImages(), WandbReport(TinyRun())
    tiny_trainer(tmp_path, callbacks=[part]).fit(tiny_classifier(data), datamodule=data)
    assert part.run is None


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_a_real_offline_run_without_key_or_terminal(tmp_path: Path, fails: bool) -> None:
    """Empty HOME and closed stdin: a login prompt would hang or raise."""
    arguments = ["--logger", "wandb", "--max_epochs", "1", "--limit_train_batches", "3"]
    arguments += ["--runs_dir", str(tmp_path), "--export.enabled", "false"]
    arguments += ["--optimizer.lr", "1e30" if fails else "0.01", "--optimizer.name", "sgd"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    result = subprocess.run(
        [sys.executable, "train.py", *arguments],
        cwd=ROOT,
        env=environment | {"HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == (1 if fails else 0), result.stderr
    assert "wandb: " not in result.stdout + result.stderr
    (run,) = tmp_path.glob("*/*/wandb/offline-run-*")
    records = read_records(next(run.glob("*.wandb")))
    exits = [record.exit.exit_code for record in records if record.HasField("exit")]
    assert exits == [1 if fails else 0]
    updates = [u for r in records if r.HasField("config") for u in r.config.update]
    updates += [u for r in records if r.HasField("run") for u in r.run.config.update]
    configured = {item.key: json.loads(item.value_json) for item in updates}
    assert configured["max_epochs"] == 1
    logged = {
        item.key or "/".join(item.nested_key)
        for r in records
        if r.HasField("history")
        for item in r.history.item
    }
    tables = {"test/predictions/path", "test/confusion_matrix/path"}
    assert fails or {"val/accuracy", "train/loss", *tables} <= logged


def read_records(path: Path) -> list[Any]:
    """The records of an offline run's file: LevelDB's log format after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    content, position, records, pending = path.read_bytes(), 7, [], b""
    while position + 7 <= len(content):
        left_in_block = 32768 - position % 32768
        if left_in_block < 7:
            position += left_in_block
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        pending += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(pending)
            records.append(record)
            pending = b""
    return records


def test_the_logger_is_offline_without_a_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert fake_logger(monkeypatch, tmp_path, {})._offline
