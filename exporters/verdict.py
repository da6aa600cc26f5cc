"""The gate's decision, apart from files and runtimes: evidence in, verdict and reasons out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.base import Comparison

ABSOLUTE_TOLERANCE = 1e-4  # FP32: |difference| <= absolute + relative * |reference|
RELATIVE_TOLERANCE = 1e-4
MIN_SQNR_DB = 15.0
PAYS = 1.3  # INT8 must be so much faster than FP32 in the same runtime

PASSED = "passed"
FAILED = "failed"
UNVERIFIED = "unverified"
UNAVAILABLE = "unavailable"
NOT_PROVEN = 3  # the exit code


@dataclass(frozen=True)
class Limits:
    """What the user may configure. Drops in percentage points, agreement in percent."""

    max_drop: float = 1.0
    max_drop_fp32: float = 0.1
    min_agreement: float = 97.0
    fail_if_slower: bool = False


@dataclass
class Evidence:
    """What the proof of one file found. Without samples, `num_samples` is 0."""

    precision: str  # "fp32" or "int8"
    problems: list[str] = field(default_factory=list)  # loading, hash, read-back, running
    read_back: dict[str, Any] = field(default_factory=dict)
    num_cases: int = 0
    max_difference: float = 0.0  # largest |output - reference| of all logits
    beyond_tolerance: str = ""  # where the FP32 tolerance is broken first
    sqnr_db: float = math.inf
    num_samples: int = 0
    compared: Comparison = Comparison()  # what the task says of the decisions
    slowdown: float | None = None  # INT8 time / FP32 time in the same runtime


@dataclass(frozen=True)
class Verdict:
    """ "passed", "failed" or "unverified", and why."""

    verdict: str
    reasons: list[str]


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Decides about one file.

    A file that cannot be loaded or is not what was asked for fails; without samples it is
    unverified; else parity (FP32) or agreement and SQNR (INT8), and the score, decide.
    """
    reasons = list(evidence.problems)
    if evidence.num_samples == 0:
        if reasons:
            return Verdict(FAILED, reasons)
        return Verdict(
            UNVERIFIED, ["no validation samples to compare on; give --samples or --data.root"]
        )
    if evidence.precision == "int8":
        reasons += int8_faults(evidence, limits)
    else:
        reasons += fp32_faults(evidence)
    reasons += score_faults(evidence, limits)
    if limits.fail_if_slower and evidence.slowdown is not None and evidence.slowdown > 1:
        reasons.append(f"{evidence.slowdown:.2f}x the time of FP32 in the same runtime")
    return Verdict(FAILED if reasons else PASSED, reasons)


def judge_speed(verdict: Verdict, evidence: Evidence | None, limits: Limits) -> Verdict:
    """The verdict after the timing: a limit of speed is kept only by what was timed."""
    if not limits.fail_if_slower or evidence is None or evidence.precision != "int8":
        return verdict
    if evidence.slowdown is not None or verdict.verdict != PASSED:
        return verdict
    return Verdict(FAILED, ["not timed against FP32, as --fail_if_slower asks for"])


def fp32_faults(evidence: Evidence) -> list[str]:
    faults = []
    if evidence.beyond_tolerance:
        faults.append(
            f"logits differ by up to {evidence.max_difference:.2g} "
            f"(first at {evidence.beyond_tolerance})"
        )
    found = evidence.compared
    if found.flipped:
        faults.append(
            f"another {found.decision} for {found.flipped} of {evidence.num_samples} samples "
            "that the checkpoint decides clearly"
        )
    return faults


def int8_faults(evidence: Evidence, limits: Limits) -> list[str]:
    faults = []
    found = evidence.compared
    if found.agreement < limits.min_agreement:
        faults.append(
            f"the checkpoint's {found.decision} for {found.agreement:.2f} % of "
            f"{evidence.num_samples} samples, at least {limits.min_agreement:g} % are needed"
        )
    if not evidence.sqnr_db >= MIN_SQNR_DB:
        faults.append(
            f"signal to quantization noise {evidence.sqnr_db:.1f} dB, "
            f"at least {MIN_SQNR_DB:g} dB are needed"
        )
    return faults


def score_faults(evidence: Evidence, limits: Limits) -> list[str]:
    """Compares the drop with its limit; a limit finer than one sample allows one sample."""
    limit = limits.max_drop if evidence.precision == "int8" else limits.max_drop_fp32
    found = evidence.compared
    if -found.difference <= max(limit, found.step) + 1e-9:
        return []
    return [f"{found.metric} falls by {-found.difference:.2f} points ({found.words})"]


def pays(slowdown: float | None) -> bool:
    """Whether an INT8 file is enough faster than FP32; of what was not compared nothing is said."""
    return slowdown is None or round(1 / slowdown, 2) >= PAYS


def recommend(artifacts: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The fastest passed file that the bundle's own predictor can run, for this machine.

    An INT8 file that does not pay is never recommended. TorchScript and other formats that need
    torch are recommended only where nothing else passed.
    """
    passed = {
        name: entry
        for name, entry in artifacts.items()
        if entry["verdict"] == PASSED and pays(entry.get("slowdown"))
    }
    if not passed:
        return None

    def rank(name: str) -> tuple[bool, float]:
        return passed[name]["runtime"] != "onnxruntime", passed[name].get("time_score") or math.inf

    return min(passed, key=rank)


def why_not_replace(older: Mapping[str, Any], newer: Mapping[str, Any]) -> str | None:
    """Why a bundle must stay as it is: what is proven is replaced only by what is proven.

    Args:
        older: The manifest of the bundle that is there.
        newer: That of the one made now, with an entry for each format that was asked for.

    Returns:
        None where the newer one may replace it.
    """
    proven = [name for name, entry in older["artifacts"].items() if entry["verdict"] == PASSED]
    passed = [name for name, entry in newer["artifacts"].items() if entry["verdict"] == PASSED]
    had, has = (any(e["file"] for e in m["artifacts"].values()) for m in (older, newer))
    if proven and not passed:
        return f"{', '.join(proven)} proven there, nothing here"
    if had and not has:
        return "no format could be released"
    same = older["checkpoint"]["sha256"] == newer["checkpoint"]["sha256"]
    lost = [name for name in proven if name in newer["artifacts"] and name not in passed]
    return f"{', '.join(lost)} proven there, not here" if same and lost else None


def exit_code(artifacts: Mapping[str, Mapping[str, Any]], requested: list[str]) -> int:
    """3 where nothing passed, or a format that was asked for by name did not; else 0."""
    passed = [name for name, entry in artifacts.items() if entry["verdict"] == PASSED]
    return 0 if passed and all(name in passed for name in requested) else NOT_PROVEN
