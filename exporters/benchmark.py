"""Latency and memory of the proven files, side by side with the checkpoint in eager mode.

All are loaded into one fresh process and timed in turn, round by round, so that whatever slows the
machine down slows all of them. One thread and all; batch 1 and 32.
"""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exporters.candidate import Loader, format_module, read_samples, runner_of
from exporters.evaluation import Runner, eager_runner
from exporters.machine import usable_cpus
from exporters.spec import ExportSpec

BATCHES = (1, 32)
ROUNDS = 20
MIN_ROUNDS = 5
MEMORY_BATCH = 32
WARM_UP = 5  # TorchScript specialises itself to a shape during its first calls
ROUND_SECONDS = 0.002  # a fast model is called several times a round
SETTING_SECONDS = 3.0  # a slow model, or a busy machine, gets fewer rounds
EAGER = "eager"


def benchmark(
    load: Loader,
    paths: Mapping[str, Path],
    input_spec: Mapping[str, Any],
    samples: Path,
) -> dict[str, list[dict[str, Any]]]:
    """Times the checkpoint and each file.

    Args:
        load: The checkpoint, for eager mode.
        paths: Format -> file.
        samples: File of real inputs; some are made up where there is none.

    Returns:
        Name -> one entry a setting: "batch", "threads", "p50_ms", "p95_ms", "calls".
    """
    spec = ExportSpec.from_json(input_spec)
    inputs = read_samples(samples) or example_arrays(spec)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in (EAGER, *paths)}
    for threads in sorted({1, usable_cpus()}):
        torch.set_num_threads(threads)
        runners = {EAGER: eager_runner(load, spec.names)}
        for name, path in paths.items():
            runners[name] = runner_of(name, path, spec.names, threads)
        for batch in BATCHES:
            rows = np.arange(batch) % len(inputs[spec.names[0]])
            chosen = {name: inputs[name][rows] for name in spec.names}
            for name, seconds in time_interleaved(runners, chosen).items():
                results[name].append(setting(batch, threads, seconds))
    return results


@dataclass(frozen=True)
class TimedFile:
    """One file of a finished bundle."""

    label: str
    format_name: str
    path: Path
    input_spec: Mapping[str, Any]
    samples: Path | None  # real inputs; the longest that the model takes are made up without
    libraries: tuple[Path, ...] = ()  # that its operators need

    def calls(self, threads: int) -> dict[int, Runner]:
        """Batch size -> a call that needs no inputs any more."""
        spec = ExportSpec.from_json(self.input_spec)
        inputs = read_samples(self.samples) if self.samples is not None else None
        inputs = inputs or longest_arrays(spec)
        runner = runner_of(self.format_name, self.path, spec.names, threads, self.libraries)
        found: dict[int, Runner] = {}
        for batch in BATCHES:
            rows = np.arange(batch) % len(inputs[spec.names[0]])
            chosen = {name: inputs[name][rows] for name in spec.names}
            found[batch] = partial(call, runner, chosen)
        return found


def call(
    runner: Runner, inputs: Mapping[str, np.ndarray], _: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Runs the inputs that were bound before, not those of the caller."""
    return runner(inputs)


def benchmark_files(files: Sequence[TimedFile]) -> dict[str, list[dict[str, Any]]]:
    """Times files of bundles side by side, without their checkpoints; results as `benchmark`'s."""
    results: dict[str, list[dict[str, Any]]] = {file.label: [] for file in files}
    for threads in sorted({1, usable_cpus()}):
        torch.set_num_threads(threads)
        calls = {file.label: file.calls(threads) for file in files}
        for batch in BATCHES:
            runners = {label: of_batch[batch] for label, of_batch in calls.items()}
            for label, seconds in time_interleaved(runners, {}).items():
                results[label].append(setting(batch, threads, seconds))
    return results


def longest_arrays(spec: ExportSpec) -> dict[str, np.ndarray]:
    """One made-up sample that fills the dynamic axes."""
    arrays = {}
    for item in spec.inputs:
        sizes = (1 if axis == "batch" else axis for axis in item.shape)
        shape = [spec.dynamic[axis][1] if isinstance(axis, str) else axis for axis in sizes]
        is_length = item.name == spec.lengths_name
        value = spec.dynamic["length"][1] if is_length else 1
        arrays[item.name] = np.full(shape, value, dtype=item.dtype)
    return arrays


def example_arrays(spec: ExportSpec) -> dict[str, np.ndarray]:
    """Made-up inputs by name."""
    return {name: tensor.numpy() for name, tensor in zip(spec.names, spec.example(), strict=True)}


def setting(batch: int, threads: int, seconds: Sequence[float]) -> dict[str, Any]:
    """The figures of one setting."""
    return {
        "batch": batch,
        "threads": threads,
        "p50_ms": round(float(np.percentile(seconds, 50)) * 1000, 4),
        "p95_ms": round(float(np.percentile(seconds, 95)) * 1000, 4),
        "calls": len(seconds),
    }


def time_interleaved(
    runners: Mapping[str, Runner], inputs: Mapping[str, np.ndarray]
) -> dict[str, list[float]]:
    """Seconds of each call, runners in turn within each round."""
    once = {name: min(time_calls(run, inputs, WARM_UP)) for name, run in runners.items()}
    repeats = {name: math.ceil(min(20, ROUND_SECONDS / once[name])) for name in runners}
    round_seconds = sum(once[name] * repeats[name] for name in runners)
    rounds = max(MIN_ROUNDS, min(ROUNDS, int(SETTING_SECONDS / round_seconds)))
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            if repeats[name] > 1:
                runner(inputs)  # another model has just used the caches
            seconds[name] += time_calls(runner, inputs, repeats[name])
    return seconds


def time_calls(runner: Runner, inputs: Mapping[str, np.ndarray], count: int) -> list[float]:
    """Seconds of each of `count` calls."""
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        runner(inputs)
        seconds.append(time.perf_counter() - start)
    return seconds


Latency = Sequence[Mapping[str, Any]]


def ratio(numerator: Latency, denominator: Latency) -> float:
    """Geometric mean over the batch sizes of the ratio of median times.

    On one thread only: what else the machine does disturbs several threads much more.
    """
    logs = [
        math.log(a["p50_ms"] / b["p50_ms"])
        for a, b in zip(numerator, denominator, strict=True)
        if a["threads"] == 1
    ]
    return math.exp(sum(logs) / len(logs))


def summarise(results: Mapping[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """For each file: its time in units of eager's, and INT8's in units of FP32's."""
    precise = {
        format_module(name).RUNTIME: name
        for name in results
        if name != EAGER and format_module(name).PRECISION == "fp32"
    }
    summary = {}
    for name, latency in results.items():
        if name == EAGER:
            continue
        module = format_module(name)
        floating = precise.get(module.RUNTIME)
        summary[name] = {"time_score": round(ratio(latency, results[EAGER]), 4), "slowdown": None}
        if module.PRECISION == "int8" and floating is not None:
            summary[name]["slowdown"] = round(ratio(latency, results[floating]), 4)
    return summary


def memory_of(load: Loader, name: str, path: Path | None, input_spec: Mapping[str, Any]) -> Any:
    """MB by which a model and a batch raise the peak memory of a fresh process.

    Returns:
        None where the system does not tell.
    """
    try:
        import resource
    except ImportError:  # Windows
        return None
    spec = ExportSpec.from_json(input_spec)
    rows = np.zeros(MEMORY_BATCH, dtype=np.int64)
    inputs = {key: array[rows] for key, array in example_arrays(spec).items()}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if path is None:
        eager_runner(load, spec.names)(inputs)
    else:
        runner_of(name, path, spec.names, None)(inputs)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    return round((after - before) * unit / 1e6, 1)
