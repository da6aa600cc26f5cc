"""The export callback, hooks driven by hand; export.py is a stand-in script."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from callbacks import export as module
from callbacks.export import Export, write_samples
from exporters import DEFAULT_FORMATS
from tests.tiny import TinyImages, TinyRun

STAND_IN = """
import json, os, sys
print("a table")
print("a fault", file=sys.stderr)
seen = {"arguments": sys.argv[1:], "rank": [k for k in os.environ if "RANK" in k]}
json.dump(seen, open(sys.argv[0] + ".json", "w"))
sys.exit(3)
"""


@pytest.fixture
def data() -> TinyImages:
    data = TinyImages(num_train=400, num_val=30)
    data.setup()
    return data


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "stand_in.py"
    path.write_text(STAND_IN)
    return path


def export_in(folder: Path, script: Path, **flags: Any) -> Export:
    """One that finds nothing to say against the model."""
    return Export(TinyRun(folder), lambda *_: None, script, **flags)


def trainer_of(**changes: Any) -> Any:
    said: list[str] = []
    facts = {"fast_dev_run": False, "overfit_batches": 0.0, "is_global_zero": True}
    facts |= {"limit_test_batches": 1.0}
    facts |= {"lightning_module": MODULE, "datamodule": "data", "print": said.append, "said": said}
    return SimpleNamespace(**facts | changes)


class Module(SimpleNamespace):
    """As much of a module as is looked at."""

    description: dict[str, Any] = {}
    deployed = nn.Linear(1, 1)

    def state_dict(self, keep_vars: bool) -> dict[str, Any]:
        return dict.fromkeys(self.names)


MODULE: Any = Module(names=["model.weight", "model.bias"])


def seen_by(script: Path) -> dict[str, Any]:
    return json.loads(Path(f"{script}.json").read_text())


def test_the_samples_are_stratified_and_complete(data: TinyImages, tmp_path: Path) -> None:
    write_samples(data, tmp_path / "samples")
    with np.load(tmp_path / "samples" / "validation.npz", allow_pickle=False) as file:
        assert file["images"].shape == (30, 1, 8, 8)
        assert file["total"] == 30
    with np.load(tmp_path / "samples" / "calibration.npz", allow_pickle=False) as file:
        assert len(file["targets"]) == 256
        assert file["total"] == -1
        assert np.bincount(file["targets"]).min() >= 80
    with np.load(tmp_path / "samples" / "test.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["images"], data.samples("test")[0]["images"])
        assert file["total"] == 30
    assert len(list((tmp_path / "samples").iterdir())) == 3


@pytest.mark.parametrize("name", ["validation.npz", "test.npz"])
def test_a_large_split_is_cut_and_says_so(
    data: TinyImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(module, "MAX_SPLIT_BYTES", 10 * 64)
    write_samples(data, tmp_path)
    with np.load(tmp_path / name) as file:
        assert len(file["targets"]) == 10
        assert file["total"] == 30


def test_without_a_test_its_samples_are_not_read(
    data: TinyImages, tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--limit_test_batches 0; an earlier run in this folder may have had one."""
    write_samples(data, tmp_path / "samples")
    read = data.samples
    asked: list[str] = []
    monkeypatch.setattr(
        data, "samples", lambda split, limit=None: (asked.append(split), read(split, limit))[1]
    )
    callback = export_in(tmp_path, script)
    callback.start(trainer_of(limit_test_batches=0), data, tmp_path / "best.ckpt")
    callback.stop()
    assert set(asked) == {"val", "train"}
    assert not (tmp_path / "samples" / "test.npz").exists()


def test_the_check_runs_when_the_fit_starts(tmp_path: Path, script: Path) -> None:
    checked: list[tuple[Any, ...]] = []
    callback = Export(TinyRun(tmp_path), lambda *given: checked.append(given), script)
    callback.on_fit_start(trainer_of(), MODULE)
    assert checked == [(MODULE.deployed, {}, "data", "default", False, None, False)]
    flags: dict[str, Any] = {"formats": "onnx,int8", "qat": "on", "fail_if_slower": True}
    trained = Export(TinyRun(tmp_path), lambda *given: checked.append(given), script, **flags)
    trained.on_fit_start(trainer_of(), MODULE)
    assert checked[1] == (MODULE.deployed, {}, "data", "onnx,int8,onnx-int8-qat", True, None, False)

    trainer = trainer_of()
    callback = Export(TinyRun(tmp_path), lambda *_: "no graph can hold this", script)
    callback.on_fit_start(trainer, MODULE)
    assert trainer.said == ["no graph can hold this"]

    def refuse(*_: Any) -> None:
        raise ValueError("export: forward returns tuple")

    callback = Export(TinyRun(tmp_path), refuse, script)
    with pytest.raises(ValueError, match="forward returns tuple"):
        callback.on_fit_start(trainer_of(is_global_zero=False), MODULE)  # on every rank


@pytest.mark.parametrize(
    ("enabled", "changes", "reason"),
    [
        (False, {}, "export is off"),
        (True, {"fast_dev_run": 1}, "no export with --fast_dev_run"),
        (True, {"overfit_batches": 2}, "no export with --overfit_batches"),
        (
            True,
            {"lightning_module": nn.Linear(1, 1)},
            "no export, Linear has no deployed and description",
        ),
        (
            True,
            {"lightning_module": Module(names=["net.weight"])},
            "no export, Module does not save weight as model.weight",
        ),
    ],
)
def test_it_is_skipped_and_says_so(
    data: TinyImages, tmp_path: Path, enabled: bool, changes: dict, reason: str
) -> None:
    trainer = trainer_of(**changes)
    callback = Export(
        TinyRun(tmp_path),
        lambda *_: pytest.fail("was checked"),
        tmp_path / "none.py",
        enabled=enabled,
    )
    callback.on_fit_start(trainer, MODULE)
    assert len(trainer.said) == 1
    assert reason in trainer.said[0]
    callback.start(trainer, data, tmp_path / "best.ckpt")
    assert callback.wait() == 0
    assert not (tmp_path / "samples").exists()


def test_export_py_gets_the_settings_and_its_output_comes_last(
    data: TinyImages,
    tmp_path: Path,
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    flags: dict[str, Any] = {"formats": "onnx", "max_drop": 0.5, "qat": "auto", "qat_epochs": 5}
    flags["fail_if_slower"] = True
    callback = export_in(
        tmp_path,
        script,
        allow_external_code=True,
        formats="onnx",
        max_drop=0.5,
        fail_if_slower=True,
        qat="auto",
        qat_epochs=5,
    )
    callback.start(trainer_of(), data, tmp_path / "checkpoints" / "best.ckpt")
    assert capsys.readouterr().out == ""
    assert callback.wait() == 3
    assert sorted(capsys.readouterr().out.splitlines()) == ["a fault", "a table"]
    assert (tmp_path / "samples" / "validation.npz").exists()
    assert "a table" in (tmp_path / "export.log").read_text()
    seen = seen_by(script)
    arguments = " ".join(seen["arguments"])
    assert seen["rank"] == []
    assert f"--ckpt {tmp_path}/checkpoints/best.ckpt" in arguments
    assert "--max_drop 0.5 --max_drop_fp32 0.1 --min_agreement 97" in arguments
    assert "--qat_epochs 5 --timeout 600" in arguments
    assert "--qat auto" in arguments
    assert "--formats onnx" in arguments
    assert "--requested" not in arguments
    assert "--fail_if_slower --allow_external_code" in arguments
    assert callback.wait() == 0  # only once


def test_default_formats_are_not_requested(tmp_path: Path, script: Path) -> None:
    callback = export_in(tmp_path, script)
    command = callback.command(tmp_path / "best.ckpt")
    assert command[command.index("--formats") + 1] == "default"
    assert command[command.index("--requested") + 1] == ""


def test_the_command_is_one_that_export_py_takes(tmp_path: Path) -> None:
    from export import build_parser

    callback = export_in(
        tmp_path, tmp_path / "export.py", allow_external_code=True, fail_if_slower=True
    )
    arguments = build_parser().parse_args(callback.command(tmp_path / "best.ckpt")[2:])
    assert arguments.output == tmp_path / "export"
    assert arguments.samples == tmp_path / "samples"
    assert arguments.formats.names == list(DEFAULT_FORMATS)
    assert (arguments.qat, arguments.qat_epochs) == ("off", 3)
    assert arguments.fail_if_slower
    assert not arguments.skip_timing
    callback = export_in(tmp_path, tmp_path / "export.py", skip_timing=True)
    assert build_parser().parse_args(callback.command(tmp_path / "best.ckpt")[2:]).skip_timing


def test_a_limit_of_speed_needs_the_timing() -> None:
    with pytest.raises(ValueError, match="needs the timing that --export.skip_timing leaves out"):
        export_in(Path(), Path(), fail_if_slower=True, skip_timing=True)


def test_other_ranks_start_nothing(data: TinyImages, tmp_path: Path, script: Path) -> None:
    callback = export_in(tmp_path, script)
    callback.start(trainer_of(is_global_zero=False), data, tmp_path / "best.ckpt")
    assert callback.wait() == 0
    assert not (tmp_path / "samples").exists()


def test_without_a_checkpoint_nothing_is_exported(
    data: TinyImages, tmp_path: Path, script: Path, capsys: pytest.CaptureFixture
) -> None:
    callback = export_in(tmp_path, script)
    callback.start(trainer_of(), data, None)
    assert callback.wait() == 0
    assert "there is no checkpoint" in capsys.readouterr().out


def test_a_run_that_breaks_ends_its_export(data: TinyImages, tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import time\ntime.sleep(60)\n")
    callback = export_in(tmp_path, script)
    callback.start(trainer_of(), data, tmp_path / "best.ckpt")
    process = callback.process
    for action in callback.run.last_actions:  # type: ignore[attr-defined]
        action()
    assert process.poll() is not None
    assert sys.executable in process.args
