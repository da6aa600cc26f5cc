"""The order of an export: check, reference, make and prove each format, time them, release.

Nothing is exported or run in this process: every step that touches the model has a fresh child.
One format's failure leaves the others as they are.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from exporters.benchmark import EAGER, benchmark, memory_of, summarise
from exporters.bundle import Stage, check_output
from exporters.candidate import Loader, format_module, make
from exporters.evaluation import write_reference
from exporters.manifest import artifact_entry, build_manifest
from exporters.process import ChildError, run_child, start_server
from exporters.verdict import FAILED, UNAVAILABLE, Evidence, Limits, Verdict, judge
from exporters.verify import prove

SPARE_BYTES = 50_000_000
MEMORY_BATCH = 32


@dataclass(frozen=True)
class Settings:
    """What one export is asked to do."""

    checkpoint: Path
    formats: list[str]
    samples: Path
    output: Path
    limits: Limits
    timeout: float  # seconds for each child


@dataclass
class Outcome:
    """What is known about one format."""

    verdict: Verdict
    evidence: Evidence | None = None
    files: dict[str, dict[str, Any]] | None = None  # as hashed when written, the model first
    details: dict[str, Any] | None = None
    seconds: float | None = None
    latency: list[dict[str, Any]] | None = None
    memory_mb: float | None = None
    time_score: float | None = None
    log: str = ""


class Pipeline:
    """One export.

    Args:
        settings: What to make, from where, to where.
        load: Picklable; builds the checkpoint's module in a child.
        console: Shows progress on a terminal.
    """

    def __init__(self, settings: Settings, load: Loader, console: Console) -> None:
        self.settings = settings
        self.load = load
        self.console = console
        self.outcomes: dict[str, Outcome] = {}

    def run(self) -> dict[str, Any]:
        """Makes the bundle and returns its manifest.

        Raises:
            ValueError: What the user can put right; the old bundle is untouched then.
        """
        settings = self.settings
        needed = 2 * len(settings.formats) * settings.checkpoint.stat().st_size + SPARE_BYTES
        check_output(settings.output, needed)
        start_server()
        logs = Path(tempfile.mkdtemp(prefix="export-"))
        try:
            return self.run_logged(logs)
        except OSError as error:
            raise ValueError(f"cannot write the bundle: {error}") from error
        finally:
            shutil.rmtree(logs, ignore_errors=True)

    def run_logged(self, logs: Path) -> dict[str, Any]:
        self.logs = logs
        self.evaluation_file = self.settings.samples / "evaluation.npz"
        try:
            description, self.reference = self.child(
                "computing the reference", write_reference, self.load,
                self.settings.samples, self.evaluation_file,
            )  # fmt: skip
        except ChildError as error:
            raise ValueError(str(error)) from error
        stage = Stage(self.settings.output)
        try:
            for name in self.settings.formats:
                self.outcomes[name] = self.make_and_prove(name, description, stage)
            eager = self.measure(description, stage)
            self.release(stage)
            manifest = build_manifest(
                self.settings.checkpoint, description, self.reference, eager, self.entries()
            )
            stage.add_runtime(description["kind"], description.get("files") or {})
            stage.finish(manifest)
            return manifest
        finally:
            stage.discard()

    def child(self, title: str, function: Callable[..., Any], *arguments: Any) -> Any:
        log = self.logs / f"{title.replace(' ', '-')}.log"
        with self.console.status(f"{title} ..."):
            return run_child(function, *arguments, timeout=self.settings.timeout, log=log)

    def make_and_prove(self, name: str, description: dict[str, Any], stage: Stage) -> Outcome:
        """One format's two children."""
        reason = format_module(name).unavailable(description)
        if reason is not None:
            return Outcome(Verdict(UNAVAILABLE, [reason]))
        folder = stage.candidate(name)
        start = time.perf_counter()
        try:
            made = self.child(
                f"exporting {name}", make, name, self.load, self.settings.samples, folder,
                self.proven_onnx(stage),
            )  # fmt: skip
            evidence = self.child(
                f"proving {name}", prove, name, folder, made["files"], description["input_spec"],
                self.evaluation_file if self.reference else None, self.reference.get("sha256", ""),
            )  # fmt: skip
        except ChildError as error:
            return Outcome(Verdict(FAILED, [str(error)]), log=error.log)
        seconds = round(time.perf_counter() - start, 1)
        verdict = judge(evidence, self.settings.limits)
        return Outcome(verdict, evidence, made["files"], made["details"], seconds)

    def proven_onnx(self, stage: Stage) -> Path | None:
        """The FP32 ONNX file, once it has not failed."""
        outcome = self.outcomes.get("onnx")
        if outcome is None or outcome.files is None or outcome.verdict.verdict == FAILED:
            return None
        return stage.candidate("onnx") / next(iter(outcome.files))

    def measure(self, description: dict[str, Any], stage: Stage) -> dict[str, Any]:
        """Latency and memory of what has not failed; a fault here costs the figures only."""
        paths = {
            name: stage.candidate(name) / next(iter(outcome.files))
            for name, outcome in self.outcomes.items()
            if outcome.files and outcome.verdict.verdict != FAILED
        }
        spec = description["input_spec"]
        samples = self.settings.samples / "validation.npz"
        try:
            latency = self.child("timing", benchmark, self.load, paths, spec, samples)
            memory = {
                name: self.child("measuring memory", memory_of, self.load, name, path, spec)
                for name, path in [(EAGER, None), *paths.items()]
            }
        except ChildError as error:
            self.console.print(f"no latencies: {error}", markup=False)
            return {"latency": None, "memory_mb": None}
        for name, facts in summarise(latency).items():
            outcome = self.outcomes[name]
            outcome.latency, outcome.memory_mb = latency[name], memory[name]
            outcome.time_score = facts["time_score"]
            if outcome.evidence is not None:
                outcome.evidence.slowdown = facts["slowdown"]
                outcome.verdict = judge(outcome.evidence, self.settings.limits)
        return {"latency": latency[EAGER], "memory_mb": memory[EAGER]}

    def release(self, stage: Stage) -> None:
        """Final names for what did not fail, `rejected/` for what did."""
        for name, outcome in self.outcomes.items():
            if outcome.verdict.verdict == FAILED:
                stage.reject(name, outcome.verdict.reasons, outcome.log)
            elif outcome.files is not None:
                stage.accept(name, outcome.files)

    def entries(self) -> dict[str, dict[str, Any]]:
        return {name: artifact_entry(name, outcome) for name, outcome in self.outcomes.items()}
