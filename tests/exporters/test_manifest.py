"""What the manifest says about one format though it decides nothing."""

import pytest

from exporters.manifest import artifact_entry
from exporters.outcome import Outcome
from exporters.verdict import Evidence, Verdict
from tasks.single_label import SingleLabel

TASK = SingleLabel(["a", "b"])


@pytest.mark.parametrize("name", ["onnx-int8", "onnx-int8-qat"])
@pytest.mark.parametrize(
    ("slowdown", "note"),
    [
        (0.5, "2.00x as fast as FP32 in the same runtime on this machine"),
        (1 / 1.3, "1.30x as fast as FP32 in the same runtime on this machine"),
        (0.8, "1.25x as fast as FP32 in the same runtime on this machine: does not pay (from "
         "1.3x)"),
        (1.25, "0.80x as fast as FP32 in the same runtime on this machine: does not pay (from "
         "1.3x)"),
        (None, "not timed against FP32, which shows whether INT8 pays: export onnx too"),
    ],
)  # fmt: skip
def test_whether_int8_pays(name: str, slowdown: float | None, note: str) -> None:
    outcome = Outcome(Verdict("passed", []), Evidence("int8", slowdown=slowdown), {}, latency=[])
    assert artifact_entry(name, outcome, TASK)["notes"] == [note]


def test_what_was_not_timed_has_no_note() -> None:
    """FP32 is what INT8 is measured by; a file that failed has no times."""
    timed = Outcome(Verdict("passed", []), Evidence("fp32"), {}, latency=[])
    failed = Outcome(Verdict("failed", ["wrong"]), Evidence("int8"))
    assert artifact_entry("onnx", timed, TASK)["notes"] == []
    assert artifact_entry("onnx-int8", failed, TASK)["notes"] == []
