"""The gate's decision as a table: what was found, what is decided, and why."""

import math
import re

import numpy as np
import pytest

from exporters.verdict import Evidence, Limits, exit_code, judge, recommend
from tasks.single_label import interval, paired


def found(precision: str = "fp32", **changes: object) -> Evidence:
    """Evidence that passes, with changes."""
    decisions = {"lost": 0, "won": 0, "agreement": 100.0, "flipped": 0, "score": 98.0}
    decisions |= {name: changes.pop(name) for name in decisions.keys() & changes}
    facts = {"num_samples": 1000, "sqnr_db": 40.0, "max_difference": 1e-6} | changes
    compared = paired(total=facts["num_samples"], **decisions)
    return Evidence(precision, compared=compared, **facts)


@pytest.mark.parametrize(
    ("evidence", "limits", "verdict", "reason"),
    [
        (found(), Limits(), "passed", ""),
        (found("int8"), Limits(), "passed", ""),
        # nothing to compare with
        (Evidence("fp32"), Limits(), "unverified", "no validation samples to compare on"),
        (Evidence("fp32", problems=["does not load"]), Limits(), "failed", "does not load"),
        (found(problems=["opset 17 was asked for"]), Limits(), "failed", "opset 17"),
        # parity of FP32
        (found(beyond_tolerance="batch 3", max_difference=0.5), Limits(), "failed",
         r"differ by up to 0.5 \(first at batch 3\)"),
        (found(flipped=1), Limits(), "failed", "another class for 1 of 1000"),
        # INT8 has its own measures
        (found("int8", beyond_tolerance="batch 3", flipped=9), Limits(), "passed", ""),
        (found("int8", agreement=97.0), Limits(), "passed", ""),
        (found("int8", agreement=96.9), Limits(), "failed", "96.90 % of 1000 samples, at least 97"),
        (found("int8", agreement=96.9), Limits(min_agreement=95), "passed", ""),
        (found("int8", sqnr_db=14.9), Limits(), "failed", "14.9 dB"),
        (found("int8", sqnr_db=math.nan), Limits(), "failed", "nan dB"),
        # accuracy
        (found(lost=1), Limits(), "passed", ""),
        (found(lost=2), Limits(), "failed", "falls by 0.20 points"),
        (found(lost=5, won=5), Limits(), "passed", ""),
        (found("int8", lost=10), Limits(), "passed", ""),
        (found("int8", lost=11), Limits(), "failed", "falls by 1.10 points"),
        (found("int8", lost=11), Limits(max_drop=2), "passed", ""),
        (found("int8", won=300), Limits(), "passed", ""),
        # one sample of a small set is more than the limit, and still allowed
        (found(lost=1, num_samples=50), Limits(), "passed", ""),
        (found(lost=2, num_samples=50), Limits(), "failed", "2 lost and 0 won of 50"),
        # speed
        (found("int8", slowdown=1.2), Limits(), "passed", ""),
        (found("int8", slowdown=1.2), Limits(fail_if_slower=True), "failed", "1.20x the time"),
        (found("int8", slowdown=0.8), Limits(fail_if_slower=True), "passed", ""),
    ],
)  # fmt: skip
def test_judge(evidence: Evidence, limits: Limits, verdict: str, reason: str) -> None:
    judged = judge(evidence, limits)
    assert judged.verdict == verdict
    assert bool(judged.reasons) == (verdict != "passed")
    assert re.search(reason, "; ".join(judged.reasons))


def test_every_fault_is_listed() -> None:
    judged = judge(found(problems=["a", "b"], flipped=3, lost=50), Limits())
    assert len(judged.reasons) == 4


def test_interval_holds_the_truth_in_95_of_100_cases() -> None:
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        lost, won, _ = generator.multinomial(400, [0.03, 0.01, 0.96])
        low, high = interval(int(lost), int(won), 400)
        inside += low <= -2.0 <= high
    assert 0.93 <= inside / 2000 <= 0.98


def test_interval_without_a_difference_is_not_a_point() -> None:
    low, high = interval(0, 0, 500)
    assert low == -high
    assert 0.1 < high < 0.6


def entry(verdict: str, time_score: float, **changes: object) -> dict:
    runtime = changes.pop("runtime", "onnxruntime")
    return {"verdict": verdict, "runtime": runtime, "time_score": time_score, **changes}


@pytest.mark.parametrize(
    ("artifacts", "chosen"),
    [
        ({}, None),
        ({"a": entry("failed", 0.1)}, None),
        ({"a": entry("unverified", 0.1)}, None),
        ({"a": entry("passed", 0.5), "b": entry("passed", 0.3)}, "b"),
        ({"a": entry("passed", 0.5), "b": entry("failed", 0.3)}, "a"),
        ({"a": entry("passed", 0.5), "b": entry("passed", 0.3, slowdown=0.78)}, "a"),
        ({"a": entry("passed", 0.5), "b": entry("passed", 0.3, slowdown=0.76)}, "b"),
        ({"a": entry("passed", 0.5), "b": entry("passed", 0.3, runtime="torch")}, "a"),
        ({"b": entry("passed", 0.3, runtime="torch")}, "b"),
    ],
)
def test_recommendation(artifacts: dict, chosen: str | None) -> None:
    assert recommend(artifacts) == chosen


@pytest.mark.parametrize(
    ("verdicts", "requested", "code"),
    [
        ({"a": "passed", "b": "passed"}, [], 0),
        ({"a": "passed", "b": "failed"}, [], 0),
        ({"a": "passed", "b": "failed"}, ["b"], 3),
        ({"a": "passed", "b": "unavailable"}, ["b"], 3),
        ({"a": "passed", "b": "unverified"}, ["a", "b"], 3),
        ({"a": "failed", "b": "failed"}, [], 3),
        ({"a": "unverified"}, [], 3),
    ],
)
def test_exit_code(verdicts: dict[str, str], requested: list[str], code: int) -> None:
    artifacts = {name: {"verdict": verdict} for name, verdict in verdicts.items()}
    assert exit_code(artifacts, requested) == code
