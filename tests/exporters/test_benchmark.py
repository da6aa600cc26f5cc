"""Timing in turn, the ratios made of it, and the table."""

import time
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from exporters import benchmark as module
from exporters.benchmark import benchmark, memory_of, summarise, time_interleaved
from exporters.report import print_report, recommendation
from tests.exporters import small_run


def pause(seconds: float, inputs: dict) -> np.ndarray:
    time.sleep(seconds)
    return np.zeros((1, 2))


def test_runners_take_turns_for_twenty_rounds() -> None:
    order: list[str] = []
    runners = {name: lambda _, n=name: order.append(n) or pause(0.003, {}) for name in "ab"}
    seconds = time_interleaved(runners, {})
    assert {name: len(times) for name, times in seconds.items()} == {"a": 20, "b": 20}
    assert "".join(order[-40:]) == "ab" * 20


def test_a_slow_model_gets_fewer_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTING_SECONDS", 0.1)
    seconds = time_interleaved({"a": partial(pause, 0.01), "b": partial(pause, 0.002)}, {})
    assert 5 <= len(seconds["a"]) < 20


def setting(batch: int, threads: int, p50: float) -> dict[str, float]:
    return {"batch": batch, "threads": threads, "p50_ms": p50}


def test_int8_is_compared_with_fp32_in_its_own_runtime() -> None:
    results = {
        "eager": [setting(1, 1, 4.0), setting(32, 1, 4.0), setting(1, 2, 100.0)],
        "torchscript": [setting(1, 1, 1.0), setting(32, 1, 1.0), setting(1, 2, 1.0)],
        "onnx": [setting(1, 1, 2.0), setting(32, 1, 2.0), setting(1, 2, 1.0)],
        "onnx-int8": [setting(1, 1, 2.0), setting(32, 1, 4.5), setting(1, 2, 1.0)],
    }
    summary = summarise(results)
    assert summary["onnx"] == {"time_score": 0.5, "slowdown": None}
    assert summary["onnx-int8"]["slowdown"] == pytest.approx(1.5)
    assert summary["torchscript"] == {"time_score": 0.25, "slowdown": None}
    del results["onnx"]
    assert summarise(results)["onnx-int8"]["slowdown"] is None


@pytest.mark.slow
def test_real_files_are_timed_against_eager(run: Path, float_onnx: Path) -> None:
    load = small_run.loader(run)
    spec = load()[1]["input_spec"]
    results = benchmark(load, {"onnx": float_onnx}, spec, run / "samples" / "validation.npz")
    assert list(results) == ["eager", "onnx"]
    for latency in results.values():
        assert {(entry["batch"], entry["threads"]) for entry in latency} >= {(1, 1), (32, 1)}
        assert all(0 < entry["p50_ms"] <= entry["p95_ms"] for entry in latency)
        assert all(entry["calls"] >= 5 for entry in latency)
    assert memory_of(load, "onnx", float_onnx, spec) >= 0


def artifact(**changes: object) -> dict:
    latency = [{"batch": 1, "threads": 1, "p50_ms": 0.123}]
    return {
        "file": "model.int8.onnx", "bytes": 12_345_678, "verdict": "passed", "reasons": [],
        "notes": [], "accuracy": 97.25, "accuracy_difference": -0.125, "latency": latency,
        "time_score": 0.25, "test": {"accuracy": 95.5, "accuracy_difference": -0.5},
        "parity": {"max_difference": 1.5e-6, "agreement": 99.5, "sqnr_db": 31.0},
        **changes,
    }  # fmt: skip


def manifest() -> dict:
    content = {
        "class_names": ["a", "b"],
        "eager": {
            "accuracy": 97.375, "latency": artifact()["latency"], "test": {"accuracy": 96.0},
        },
        "artifacts": {
            "onnx-int8": artifact(),
            "torchscript": artifact(
                verdict="failed", file=None, reasons=["logits differ by [0.5]"], parity=None,
                accuracy=None, accuracy_difference=None, latency=None, time_score=None, test=None,
            ),
        },
        "recommended": "onnx-int8",
        "num_samples": 800,
    }  # fmt: skip
    content["recommendation"] = recommendation(content)
    return content


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_says_everything(width: int) -> None:
    output = StringIO()
    print_report(manifest(), Console(file=output, width=width, highlight=False))
    text = output.getvalue()
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    header = ["format", "file", "MB", "parity", "val", "%", "test", "%", "ms", "verdict"]
    assert lines[0].split() == header
    assert lines[1].split() == ["eager", "97.38", "96.00", "0.12", "reference"]
    assert lines[2].split() == [
        "onnx-int8", "model.int8.onnx", "12.35", "99.50", "%", "-0.12", "-0.50", "0.12", "passed",
    ]  # fmt: skip
    assert lines[3].split() == ["torchscript", "12.35", "failed"]
    assert "torchscript: logits differ by [0.5]" in lines
    assert "4.0x as fast as eager" in text
    assert "800 samples" in text
