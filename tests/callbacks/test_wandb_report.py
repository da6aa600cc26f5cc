"""Weights & Biases without an account: offline, never a prompt, one run, failures marked."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from callbacks.wandb_report import WandbReport, build_wandb_logger, has_key
from tests.tiny import TinyImages, tiny_classifier, tiny_trainer

ROOT = Path(__file__).resolve().parents[2]


class FakeRun:
    """Remembers what it is told."""

    id = "abc"

    def __init__(self) -> None:
        self.logged: dict[str, Any] = {}
        self.artifacts: list[Any] = []
        self.exit_code: int | None = None
        self.is_preempted = False

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
    part = WandbReport()
    part.folder = tmp_path
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
    assert confusion == model.reports["test"].confusion.tolist()


def test_samples_leave_the_machine_only_when_asked(tmp_path: Path) -> None:
    part = WandbReport(log_samples=True)
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


def test_the_bundle_becomes_an_artifact(report: WandbReport, tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "manifest.json").write_text("{}")
    report.log_bundle(tmp_path / "export")
    (artifact,) = report.run.artifacts
    assert list(artifact.manifest.entries) == ["manifest.json"]
    report.log_bundle(tmp_path / "none")
    assert len(report.run.artifacts) == 1


def test_idle_with_another_logger(tmp_path: Path) -> None:
    data, part = TinyImages(), WandbReport()
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
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    logger = build_wandb_logger(tmp_path, "project", "experiment")
    assert logger._offline
