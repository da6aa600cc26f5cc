"""Leaves a proven bundle behind: checks the model for it when the fit starts, exports afterwards.

The export runs in a process of its own, started by rank 0 for the best checkpoint, while all ranks
go on to the test; nothing here is a collective, so no rank can hang another.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import pytorch_lightning as pl

from callbacks.module_contract import DEPLOYED, Deployable, name_of
from callbacks.run_contract import Run

DEFAULT = "default"
QAT = "onnx-int8-qat"  # what qat asks for
CALIBRATION_SAMPLES = 256  # 200 are needed; a few more so that every class is there
MAX_SPLIT_BYTES = 256_000_000  # a stratified part of what is larger
UNKNOWN = -1
LOG = "export.log"


# model, description, datamodule, formats, fail_if_slower, onnx_translations, allow_external_code ->
# what a user should know, or ValueError
ExportCheck = Callable[[Any, Any, Any, str, bool, str | None, bool], str | None]


class SampleSource(Protocol):
    """The part of a datamodule that gives evaluation samples."""

    def samples(
        self, split: str, limit: int | None = None
    ) -> tuple[dict[str, np.ndarray], np.ndarray]: ...


class Export(pl.Callback):
    """Exports the best checkpoint in several formats and proves each.

    Args:
        run: In whose folder samples, bundle and log go, and whose end stops a running export.
        check: Called with model, description, datamodule, and formats, `fail_if_slower`,
            `onnx_translations` and `allow_external_code`; raises ValueError where they do not fit,
            and returns what a user should know beforehand.
        script: The project's export.py.
        allow_external_code: Passed on to the script.
        enabled: Whether to export at all.
        formats: Names divided by commas, or default, all, fp32, int8. A format that is given here
            by its name and fails makes the exit code 3; of a group what can be made here is made.
        max_drop: Points of the main score on the validation data that INT8 may lose.
        max_drop_fp32: Likewise for float32 formats.
        min_agreement: Percent of validation samples on which INT8 must agree with the checkpoint.
        fail_if_slower: INT8 that is slower than FP32 in the same runtime, or not timed, fails.
        skip_timing: No latency and memory: sooner done, and the recommendation knows no speed.
        qat: Whether to fine-tune a copy for INT8 (onnx-int8-qat): off, on, or auto, which does so
            only where INT8 without it fails.
        qat_epochs: Epochs of that fine-tuning.
        timeout: Seconds for each step of each format.
        onnx_translations: Import path of your own table {torch operator: function of onnxscript}
            for operators that the exporter to ONNX does not know.
    """

    def __init__(
        self,
        run: Run,
        check: ExportCheck,
        script: Path,
        allow_external_code: bool = False,
        enabled: bool = True,
        formats: str = DEFAULT,
        max_drop: Annotated[float, "0 <= x <= 100"] = 1.0,
        max_drop_fp32: Annotated[float, "0 <= x <= 100"] = 0.1,
        min_agreement: Annotated[float, "0 <= x <= 100"] = 97.0,
        fail_if_slower: bool = False,
        skip_timing: bool = False,
        qat: Literal["off", "auto", "on"] = "off",
        qat_epochs: Annotated[int, ">= 1"] = 3,
        timeout: Annotated[float, "1 <= x <= 1e6"] = 600.0,
        onnx_translations: str | None = None,
    ) -> None:
        if fail_if_slower and skip_timing:
            raise ValueError(
                "--export.fail_if_slower needs the timing that --export.skip_timing leaves out"
            )
        self.enabled = enabled
        self.formats = formats
        self.fail_if_slower = fail_if_slower
        self.skip_timing = skip_timing
        self.qat = qat
        self.onnx_translations = onnx_translations
        self.numbers = {"max_drop": max_drop, "max_drop_fp32": max_drop_fp32}
        self.numbers |= {"min_agreement": min_agreement}
        self.numbers |= {"qat_epochs": qat_epochs, "timeout": timeout}
        self.run = run
        self.check = check
        self.script = script
        self.allow_external_code = allow_external_code
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path: Path | None = None

    def skip_reason(self, trainer: pl.Trainer) -> str | None:
        """Why nothing is exported, in words; None where something is."""
        if not self.enabled:
            return "export is off (--export.enabled false)"
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return "no export with --fast_dev_run"
        if trainer.overfit_batches:  # type: ignore[attr-defined]
            return "no export with --overfit_batches"
        module = trainer.lightning_module
        if not isinstance(module, Deployable):
            return f"no export, {name_of(module)} has no deployed and description"
        saved = module.state_dict(keep_vars=True)
        if missing := [n for n in module.deployed.state_dict() if f"{DEPLOYED}{n}" not in saved]:
            return (
                f"no export, {name_of(module)} does not save {missing[0]} as {DEPLOYED}{missing[0]}"
            )
        return None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Every rank checks its own copy of the model on the CPU."""
        reason = self.skip_reason(trainer)
        if reason is not None:
            trainer.print(reason)
        elif isinstance(pl_module, Deployable):
            data = trainer.datamodule  # type: ignore[attr-defined]
            formats = f"{self.formats},{QAT}" if self.qat == "on" else self.formats
            how = formats, self.fail_if_slower, self.onnx_translations, self.allow_external_code
            note = self.check(pl_module.deployed, pl_module.description, data, *how)
            if note:
                trainer.print(note)

    def start(
        self, trainer: pl.Trainer, datamodule: SampleSource, checkpoint: str | Path | None
    ) -> None:
        """Writes the samples and starts export.py without waiting for it; on rank 0 only.

        Args:
            checkpoint: The best one; None where none was saved.
        """
        if not trainer.is_global_zero or self.skip_reason(trainer) is not None:
            return
        folder = self.run.folder
        if checkpoint is None or folder is None:
            print("no export: there is no checkpoint")
            return
        has_test = trainer.limit_test_batches != 0
        write_samples(datamodule, folder / "samples", has_test)
        self.log_path = folder / LOG
        self.run.at_end(self.stop)
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                self.command(Path(checkpoint)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=child_environment(),
            )

    def command(self, checkpoint: Path) -> list[str]:
        """The command line of export.py."""
        command = [sys.executable, str(self.script), "--ckpt", str(checkpoint)]
        folder = self.run.folder
        command += ["--samples", f"{folder}/samples", "--output", f"{folder}/export"]
        for name, value in self.numbers.items():
            command += [f"--{name}", f"{value:g}"]
        command += ["--formats", self.formats, "--qat", self.qat]
        if self.formats == DEFAULT:
            command += ["--requested", ""]
        if self.fail_if_slower:
            command.append("--fail_if_slower")
        if self.skip_timing:
            command.append("--skip_timing")
        if self.onnx_translations:
            command += ["--onnx_translations", self.onnx_translations]
        if self.allow_external_code:
            command.append("--allow_external_code")
        return command

    def wait(self) -> int:
        """Waits for the export and prints its table; call it last, when no collective can follow.

        Returns:
            The exit code of export.py; 0 where none was started.
        """
        if self.process is None or self.log_path is None:
            return 0
        code = self.process.wait()
        self.process = None
        print(self.log_path.read_text(encoding="utf-8", errors="replace"), end="", flush=True)
        return code

    def stop(self) -> None:
        """Ends an export that still runs: a run that breaks leaves none behind it."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None


def child_environment() -> dict[str, str]:
    """This process's environment without its rank, and with the width of the terminal."""
    distributed = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(distributed)}
    kept.setdefault("COLUMNS", str(terminal_width()))
    kept["PYTHONIOENCODING"] = "utf-8"
    return kept


def terminal_width() -> int:
    """Columns of the terminal; 100 where the output goes elsewhere."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return 100


def write_samples(datamodule: SampleSource, folder: Path, has_test: bool = True) -> None:
    """Writes validation.npz, test.npz (whole splits up to a limit of bytes) and calibration.npz.

    "total" is the number of samples in the whole split, -1 where that is not known. No pickles.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.npz").unlink(missing_ok=True)
    for split, name in (("val", "validation.npz"), ("test", "test.npz"))[: 1 + has_test]:
        inputs, targets = datamodule.samples(split)
        size, total = sum(array.nbytes for array in inputs.values()), len(targets)
        if size > MAX_SPLIT_BYTES:
            inputs, targets = datamodule.samples(split, total * MAX_SPLIT_BYTES // size)
        save(folder / name, inputs, targets, total)
    inputs, targets = datamodule.samples("train", CALIBRATION_SAMPLES)
    complete = len(targets) < CALIBRATION_SAMPLES
    save(folder / "calibration.npz", inputs, targets, len(targets) if complete else UNKNOWN)


def save(path: Path, inputs: dict[str, Any], targets: np.ndarray, total: int) -> None:
    """Writes beside the target, then renames."""
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as file:
        np.savez(file, targets=targets, total=np.array(total), **inputs)
    temporary.replace(path)
