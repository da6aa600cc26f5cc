"""The order of an export: check, reference, make and prove each format, time them, release.

Nothing is exported or run in this process: every step that touches the model has a fresh child.
One format's failure leaves the others as they are.
"""

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from exporters import EXPORTERS, OPSET, proven
from exporters.benchmark import EAGER, benchmark, memory_of, summarise
from exporters.bundle import Stage
from exporters.bundle_place import check_output, held, settle
from exporters.candidate import Loader, Options, TrainingSource, format_module, make
from exporters.evaluation import write_reference
from exporters.format_choice import QAT
from exporters.manifest import artifact_entry, build_manifest
from exporters.operators import Translations
from exporters.outcome import Outcome, restored
from exporters.process import ChildError, run_child, start_server
from exporters.verdict import FAILED, PASSED, UNAVAILABLE, Limits, Verdict, judge, judge_speed
from exporters.verify import prove, score_test
from tasks.base import build_task

TESTING = "testing"
SPARE_BYTES = 50_000_000


@dataclass(frozen=True)
class Settings:
    """What one export is asked to do."""

    checkpoint: Path
    formats: list[str]
    samples: Path
    output: Path
    limits: Limits
    timeout: float  # seconds for each child
    qat: str = "off"  # "on", or "auto": where INT8 without it fails
    qat_epochs: int = 3
    opset: int = OPSET
    overwrite: bool = False  # a bundle that proves more
    timing: bool = True


class Pipeline:
    """One export.

    Args:
        settings: What to make, from where, to where.
        load: Picklable; builds the checkpoint's module in a child.
        training: Picklable; opens the training split in a child.
        console: Shows progress on a terminal.
        translations: Picklable; gives the table for operators that ONNX's exporter knows not.
    """

    def __init__(
        self,
        settings: Settings,
        load: Loader,
        training: TrainingSource,
        console: Console,
        translations: Translations | None = None,
    ) -> None:
        self.translations = translations
        self.settings = settings
        self.load = load
        self.training = training
        self.console = console
        self.outcomes: dict[str, Outcome] = {}
        self.placed = settings.output

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
            with held(settings.output):
                settle(settings.output)  # an exchange that was killed
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
                self.settings.samples, self.evaluation_file, self.translations,
            )  # fmt: skip
        except ChildError as error:
            raise ValueError(str(error)) from error
        settings = self.settings
        self.task = build_task(description)
        libraries = description.get("probe", {}).get("libraries", ())
        proven_from = settings.checkpoint, settings.samples, self.reference, libraries
        self.key = proven.key_of(*proven_from)
        stage = Stage(settings.output)
        try:
            dropped = self.keep_proven(description, stage)
            for name in self.settings.formats:
                self.outcomes[name] = self.make_and_prove(name, description, stage)
            if self.wants_qat():
                self.outcomes[QAT] = self.make_and_prove(QAT, description, stage)
            eager = self.measure(description, stage)
            self.release(stage)
            manifest = build_manifest(
                self.settings.checkpoint, description, self.reference, eager, self.entries()
            )
            stage.add_runtime(description["preprocessing"], description.get("files") or {})
            self.placed = stage.finish(manifest, settings.overwrite)
            self.say_what_went(dropped, stage)
            return manifest
        except Exception:  # an interrupted export leaves what it has proven to the next one
            stage.discard()
            raise

    def keep_proven(self, description: dict[str, Any], stage: Stage) -> list[str]:
        """Takes over formats of the older bundle that nobody asked for now; names what it cannot.

        They come before all that is made: other formats are made of them, or compared with them.
        """
        dropped = []
        older = stage.older["artifacts"] if stage.older is not None else {}
        for name, entry in older.items():
            if entry["file"] is None or name in self.settings.formats:
                continue
            known = None
            if name in EXPORTERS and format_module(name).unavailable(description) is None:
                key = self.key and f"{self.key} "  # whatever its opset and the limits then
                known = proven.recall(self.settings.samples, key, name, whole_key=False)
            outcome = restored(known) if known is not None else None
            if outcome is not None and outcome.evidence is not None:
                outcome.verdict = judge(outcome.evidence, self.settings.limits)
                if outcome.verdict.verdict == PASSED and stage.recover(name, outcome.files or {}):
                    self.console.print(f"{name}: still proven, stays in the bundle")
                    self.outcomes[name] = outcome
            if name not in self.outcomes:
                dropped.append(name)
        return dropped

    def say_what_went(self, dropped: list[str], stage: Stage) -> None:
        """Names what an exchange has changed beside what was asked for."""
        say = partial(self.console.print, markup=False, soft_wrap=True)
        if dropped and self.placed == self.settings.output:
            say(
                f"no longer in the bundle: {', '.join(dropped)} (not proven for this checkpoint, "
                "these samples, limits and library versions; --formats makes them again)"
            )
        for path in stage.renamed:
            say(f"kept as {path}: its name is one of the bundle's")

    def wants_qat(self) -> bool:
        """Whether INT8 with training is asked for, or called for by the failure without it."""
        plain = self.outcomes.get("onnx-int8")
        failed = plain is not None and plain.verdict.verdict == FAILED
        wanted = self.settings.qat == "on" or (self.settings.qat == "auto" and failed)
        return wanted and QAT not in self.outcomes

    def child(self, title: str, function: Callable[..., Any], *arguments: Any) -> Any:
        log = self.logs / f"{title.replace(' ', '-')}.log"
        steps = 1 + self.settings.qat_epochs * (QAT in title)
        if title == TESTING:  # one child for eager and all formats
            steps = 1 + len(self.outcomes)
        timeout = self.settings.timeout * steps
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        hidden = not self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=hidden) as progress:
            progress.add_task(title, total=None)
            return run_child(function, *arguments, timeout=timeout, log=log)

    def make_and_prove(self, name: str, description: dict[str, Any], stage: Stage) -> Outcome:
        """Makes a format, with more of it in FP32 each time INT8 does not keep the limits."""
        reason = format_module(name).unavailable(description)
        if reason is not None:
            return Outcome(Verdict(UNAVAILABLE, [reason]))
        samples = self.settings.samples
        opset = self.settings.opset if name.startswith("onnx") else ""
        epochs = self.settings.qat_epochs if name == QAT else ""
        key = self.key and f"{self.key} {opset} {epochs} {self.settings.limits}"
        known = proven.recall(samples, key, name)
        if known is not None and stage.recover(name, known["files"]):
            self.console.print(f"{name}: already proven, not made again")
            return restored(known)
        reasons: list[str] = []  # of the attempt before
        for attempt in itertools.count():
            stage.clear(name)
            outcome = self.attempt(name, description, stage, attempt)
            details = outcome.details or {}
            if reasons:
                details["notes"] = [*details["notes"], f"with less of it in FP32: {reasons[0]}"]
            reasons = outcome.verdict.reasons
            if outcome.verdict.verdict != FAILED or not details.get("more_in_fp32"):
                break
        if outcome.evidence is not None:
            proven.remember(samples, key, name, asdict(outcome))
        return outcome

    def attempt(
        self, name: str, description: dict[str, Any], stage: Stage, attempt: int
    ) -> Outcome:
        """One format's two children."""
        folder = stage.candidate(name)
        settings = self.settings
        how = settings.qat_epochs, settings.opset, self.translations
        options = Options(attempt, self.training, *how)
        start = time.perf_counter()
        try:
            made = self.child(
                f"exporting {name}", make, name, self.load, settings.samples, folder,
                self.proven_onnx(stage), options,
            )  # fmt: skip
            evidence = self.child(
                f"proving {name}", prove, name, folder, made["files"], description["input_spec"],
                self.evaluation_file if self.reference else None, self.reference.get("sha256", ""),
                self.task, settings.opset,
            )  # fmt: skip
        except ChildError as error:
            return Outcome(Verdict(FAILED, [str(error)]), log=error.log)
        seconds = round(time.perf_counter() - start, 1)
        verdict = judge(evidence, settings.limits)
        return Outcome(verdict, evidence, made["files"], made["details"], seconds)

    def proven_onnx(self, stage: Stage) -> Path | None:
        """The FP32 ONNX file, once it has not failed; one that stayed may have another opset."""
        outcome = self.outcomes.get("onnx")
        if outcome is None or outcome.files is None or outcome.evidence is None:
            return None
        found = outcome.evidence.read_back.get("opset")
        if outcome.verdict.verdict == FAILED or found != self.settings.opset:
            return None
        return stage.candidate("onnx") / next(iter(outcome.files))

    def measure(self, description: dict[str, Any], stage: Stage) -> dict[str, Any]:
        """Test scores, latency and memory of what has not failed, and what follows from them."""
        eager = self.try_to_measure(description, stage)
        for outcome in self.outcomes.values():
            outcome.verdict = judge_speed(outcome.verdict, outcome.evidence, self.settings.limits)
        return eager

    def try_to_measure(self, description: dict[str, Any], stage: Stage) -> dict[str, Any]:
        """A fault costs figures only, and so does leaving the timing out."""
        paths = {
            name: stage.candidate(name) / next(iter(outcome.files))
            for name, outcome in self.outcomes.items()
            if outcome.files and outcome.verdict.verdict != FAILED
        }
        spec = description["input_spec"]
        samples = self.settings.samples / "validation.npz"
        tested = self.test_scores(paths, spec)
        for name, outcome in self.outcomes.items():
            outcome.test = tested.get(name)
        untimed = {"latency": None, "memory_mb": None, "test": tested.get(EAGER)}
        if not self.settings.timing:
            return untimed
        try:
            latency = self.child("timing", benchmark, self.load, paths, spec, samples)
            memory = {
                name: self.child("measuring memory", memory_of, self.load, name, path, spec)
                for name, path in [(EAGER, None), *paths.items()]
            }
        except ChildError as error:
            self.console.print(f"no latencies: {error}", markup=False)
            return untimed
        for name, facts in summarise(latency).items():
            outcome = self.outcomes[name]
            outcome.latency, outcome.memory_mb = latency[name], memory[name]
            outcome.time_score = facts["time_score"]
            if outcome.evidence is not None:
                outcome.evidence.slowdown = facts["slowdown"]
                outcome.verdict = judge(outcome.evidence, self.settings.limits)
        eager = {"latency": latency[EAGER], "memory_mb": memory[EAGER]}
        return eager | {"test": tested.get(EAGER)}

    def test_scores(self, paths: dict[str, Path], spec: dict[str, Any]) -> dict[str, Any]:
        """After the proofs, and in a child of its own: no verdict may depend on it."""
        samples = self.settings.samples / "test.npz"
        if not samples.is_file():
            return {}
        try:
            return self.child(TESTING, score_test, self.load, paths, spec, samples, self.task)
        except ChildError as error:
            self.console.print(f"no figures of the test set: {error}", markup=False)
            return {}

    def release(self, stage: Stage) -> None:
        """Final names for what did not fail, `rejected/` for what did."""
        for name, outcome in self.outcomes.items():
            if outcome.verdict.verdict == FAILED:
                stage.reject(name, outcome.verdict.reasons, outcome.log)
            elif outcome.files is not None:
                stage.accept(name, outcome.files)

    def entries(self) -> dict[str, dict[str, Any]]:
        """One a format, in the order of all formats."""
        names = [name for name in EXPORTERS if name in self.outcomes]
        return {name: artifact_entry(name, self.outcomes[name], self.task) for name in names}
