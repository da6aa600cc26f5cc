"""The order of an export: what is tried again with more in FP32, what is trained, what is left."""

import re
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from exporters import pipeline as module
from exporters.bundle import Stage
from exporters.bundle_files import read_manifest
from exporters.format_choice import QAT
from exporters.outcome import Outcome
from exporters.pipeline import Pipeline, Settings
from exporters.process import ChildError
from exporters.verdict import Evidence, Limits, Verdict
from tasks.base import Comparison
from tasks.single_label import paired
from tests.exporters import small_run
from tests.exporters.other_networks import load_branching
from tests.exporters.small_manifest import make_bundle

PROBE = {"operators": ["convolution"], "decisions": []}


def pipeline_of(run: Path, output: Path, formats: list[str], **settings: Any) -> Pipeline:
    base = Settings(
        run / small_run.CHECKPOINT, formats, run / "samples", output, Limits(), 120.0, **settings
    )
    return Pipeline(base, partial(load_branching, run), None, Console(file=StringIO()))


def driven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdicts: list[str], stages: int
) -> tuple[Pipeline, Outcome, list[int]]:
    """The loop alone: each attempt gets the next verdict."""
    tried: list[int] = []

    def attempt(self: Any, name: str, description: Any, stage: Any, number: int) -> Outcome:
        tried.append(number)
        verdict = Verdict(verdicts[number], [f"reason {number}"])
        details = {"notes": [], "more_in_fp32": number + 1 < stages}
        return Outcome(verdict, Evidence("int8"), {}, details)

    monkeypatch.setattr(Pipeline, "attempt", attempt)
    monkeypatch.setattr(module.proven, "recall", lambda *_: None)
    monkeypatch.setattr(module.proven, "remember", lambda *_: None)
    pipeline = pipeline_of(tmp_path, tmp_path / "export", ["onnx-int8"])
    pipeline.key = None
    stage = Stage(tmp_path / "export")
    return pipeline, pipeline.make_and_prove("onnx-int8", {"probe": PROBE}, stage), tried


@pytest.mark.parametrize(
    ("verdicts", "stages", "tried", "verdict"),
    [
        (["passed"], 3, [0], "passed"),
        (["failed", "failed", "passed"], 3, [0, 1, 2], "passed"),
        (["failed", "failed", "failed"], 3, [0, 1, 2], "failed"),
        (["failed"], 1, [0], "failed"),
        (["unverified"], 3, [0], "unverified"),
    ],
)
def test_more_stays_in_fp32_only_while_the_limits_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    verdicts: list[str], stages: int, tried: list[int], verdict: str,
) -> None:  # fmt: skip
    _, outcome, seen = driven(tmp_path, monkeypatch, verdicts, stages)
    assert seen == tried
    assert outcome.verdict.verdict == verdict
    last = [f"with less of it in FP32: reason {tried[-1] - 1}"] if len(tried) > 1 else []
    assert outcome.details["notes"] == last


@pytest.mark.parametrize(
    ("qat", "outcomes", "wanted"),
    [
        ("off", {"onnx-int8": "failed"}, False),
        ("auto", {"onnx-int8": "failed"}, True),
        ("auto", {"onnx-int8": "passed"}, False),
        ("auto", {"onnx": "failed"}, False),
        ("on", {"onnx-int8": "passed"}, True),
        ("on", {QAT: "failed"}, False),  # made already
    ],
)
def test_when_int8_is_trained(
    tmp_path: Path, qat: str, outcomes: dict[str, str], wanted: bool
) -> None:
    pipeline = pipeline_of(tmp_path, tmp_path / "export", ["onnx-int8"], qat=qat)
    pipeline.outcomes = {name: Outcome(Verdict(v, [])) for name, v in outcomes.items()}
    assert pipeline.wants_qat() is wanted


@pytest.mark.parametrize("why", ["no FP32 beside it", "the timing fails"])
@pytest.mark.parametrize(
    ("asked", "verdicts", "expected"),
    [
        (True, {"onnx": "passed", "onnx-int8": "passed"}, {"onnx-int8": "failed"}),
        (True, {"onnx-int8": "passed", QAT: "passed"}, {"onnx-int8": "failed", QAT: "failed"}),
        (True, {"onnx": "passed", "onnx-int8": "failed"}, {}),
        (True, {"onnx-int8": "unverified"}, {}),
        (True, {"onnx-int8": "unavailable"}, {}),
        (False, {"onnx": "passed", "onnx-int8": "passed"}, {}),
    ],
)
def test_a_limit_of_speed_is_not_kept_by_what_was_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool, verdicts: dict[str, str],
    expected: dict[str, str], why: str,
) -> None:  # fmt: skip
    """The times are lost, or come without a comparison."""
    pipeline = pipeline_of(tmp_path, tmp_path / "export", [])
    limits = Limits(fail_if_slower=asked)
    pipeline.settings = replace(pipeline.settings, limits=limits)
    for name, verdict in verdicts.items():
        size = 0 if verdict == "unverified" else 10
        precision = "int8" if "int8" in name else "fp32"
        evidence = Evidence(precision, num_samples=size, compared=Comparison(agreement=100.0))
        known = None if verdict == "unavailable" else evidence
        pipeline.outcomes[name] = Outcome(Verdict(verdict, []), known, {f"{name}.x": {}})

    def child(self: Any, title: str, function: Any, *arguments: Any) -> Any:
        if title == "timing" and why == "the timing fails":
            raise ChildError("took longer than 5 s and was stopped")
        return dict.fromkeys(["eager", *arguments[1]], []) if title == "timing" else 1.0

    facts = {"slowdown": None, "time_score": 1.0}
    names = lambda latency: latency.keys() - {"eager"}  # noqa: E731
    monkeypatch.setattr(module, "summarise", lambda x: dict.fromkeys(names(x), facts))
    monkeypatch.setattr(Pipeline, "child", child)
    pipeline.measure({"input_spec": {}}, Stage(tmp_path / "export"))
    found = {name: outcome.verdict.verdict for name, outcome in pipeline.outcomes.items()}
    assert found == verdicts | expected
    for name in expected:
        assert "not timed" in pipeline.outcomes[name].verdict.reasons[0]


@pytest.mark.parametrize(
    ("limits", "stays"),
    [
        (Limits(), True),
        (Limits(max_drop=2.0, max_drop_fp32=5.0), True),
        (Limits(min_agreement=99.0), False),
        (Limits(max_drop=0.5), False),
    ],
)
def test_what_nobody_asked_for_stays_where_it_keeps_the_limits_of_now(
    tmp_path: Path, limits: Limits, stays: bool
) -> None:
    bundle = make_bundle(tmp_path / "export")  # with onnx, here as if it were INT8
    compared = paired(lost=8, won=0, total=1000, agreement=98.0, score=90.0)
    evidence = Evidence("int8", num_samples=1000, compared=compared, sqnr_db=30.0)
    files = {"model.onnx": read_manifest(bundle)["files"]["model.onnx"]}
    outcome = Outcome(Verdict("passed", []), evidence, files, {"notes": []})
    pipeline = pipeline_of(tmp_path, bundle, ["pt2"])
    (tmp_path / "samples").mkdir()
    module.proven.remember(tmp_path / "samples", "k 18  earlier", "onnx", asdict(outcome))
    pipeline.settings, pipeline.key = replace(pipeline.settings, limits=limits), "k"
    dropped = pipeline.keep_proven({"probe": PROBE}, Stage(bundle))
    assert (dropped, list(pipeline.outcomes)) == (([], ["onnx"]) if stays else (["onnx"], []))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_what_is_done_and_for_how_long(tmp_path: Path, is_terminal: bool) -> None:
    pipeline = pipeline_of(tmp_path, tmp_path / "export", ["onnx"])
    output = StringIO()
    pipeline.console = Console(file=output, force_terminal=is_terminal)
    pipeline.logs = tmp_path
    assert pipeline.child("exporting onnx", time.sleep, 0.3) is None
    pattern = r"exporting onnx\S* \S*0:00:00" if is_terminal else r"^$"
    assert re.search(pattern, output.getvalue())


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="TorchScript is absent there")
def test_a_branching_network_has_the_formats_that_can_hold_it(run: Path, tmp_path: Path) -> None:
    formats = ["torchscript", "pt2", "onnx", "onnx-int8", "onnx-int8-qat", "aoti"]
    artifacts = pipeline_of(run, tmp_path / "export", formats).run()["artifacts"]
    assert artifacts["torchscript"]["verdict"] == "passed"
    assert "scripted" in artifacts["torchscript"]["notes"][0]
    for name in ("pt2", "onnx", "onnx-int8"):
        assert artifacts[name]["verdict"] == "unavailable"
        (reason,) = artifacts[name]["reasons"]
        assert "if (x - 0.3).sum() > 0:" in reason
        assert "torchscript" in reason
