"""Latency and size of exported networks, per network one table: python -m benchmarks.export

Random weights and inputs, since speed and size depend on neither; accuracy is what export.py
measures on real data. Every file is made in a process of its own; then all engines run in turn in
one process, round by round, with one thread and a batch of 1, and the medians are compared.
OpenVINO runs the same ONNX files, where it is installed.

N batch, L tokens.
"""

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from exporters.candidate import Options, make, runner_of
from exporters.evaluation import Runner, tensor_runner
from exporters.machine import describe_machine
from exporters.process import run_child
from exporters.verdict import pays
from lightning_modules.deployed import deploy, network_class

FORMATS = ("torchscript", "onnx", "onnx-int8")
CALIBRATION = 200
VOCABULARY, LENGTH, LONGEST = 25_000, 128, 512
TIMEOUT = 3600.0


@dataclass(frozen=True)
class Subject:
    """A network and what goes in."""

    network: str
    shape: tuple[int, int, int] | None = None  # [C,H,W]; None: text
    arguments: dict[str, Any] = field(default_factory=dict)


SUBJECTS = {
    "resnet50": Subject("torchvision", (3, 224, 224), {"architecture": "resnet50"}),
    "small_cnn": Subject("small_cnn", (1, 28, 28)),
    "cifar_resnet": Subject("cifar_resnet", (3, 32, 32)),
    "text_cnn": Subject("text_cnn"),
    "bilstm": Subject("bilstm"),
    "text_transformer": Subject("text_transformer", None, {"max_length": LONGEST}),
    "bag_of_embeddings": Subject("bag_of_embeddings"),
}


def random_inputs(subject: Subject, count: int) -> dict[str, np.ndarray]:
    """Normalised pixels as uint8 [N,C,H,W], or texts of one length [N,L]."""
    generator = np.random.default_rng(0)
    if subject.shape is not None:
        pixels = 0.5 + 0.25 * generator.standard_normal((count, *subject.shape), dtype=np.float32)
        return {"images": (255 * pixels.clip(0, 1)).astype(np.uint8)}
    tokens = generator.integers(2, VOCABULARY, (count, LENGTH))
    return {"tokens": tokens, "lengths": np.full(count, LENGTH)}


def load(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """The network as a checkpoint's loader gives it."""
    subject = SUBJECTS[name]
    torch.manual_seed(0)
    classes = 1000 if name == "resnet50" else 10
    inputs: list[tuple[str, str, list[Any]]]
    normalisation: dict[str, Any] | None
    if subject.shape is None:
        arguments: dict[str, Any] = {"vocab_size": VOCABULARY, "num_classes": classes}
        normalisation = None
        inputs = [("tokens", "int64", ["batch", "length"]), ("lengths", "int64", ["batch"])]
    else:
        channels, *size = subject.shape
        arguments = {"in_channels": channels, "num_classes": classes}
        if subject.network != "cifar_resnet":
            arguments["image_size"] = tuple(size)
        normalisation = {"mean": [0.5] * channels, "std": [0.25] * channels}
        inputs = [("images", "uint8", ["batch", *subject.shape])]
    dynamic = {"batch": [1, 1024]} | ({} if subject.shape else {"length": [1, LONGEST]})
    spec = {
        "inputs": [{"name": n, "dtype": dtype, "shape": shape} for n, dtype, shape in inputs],
        "dynamic": dynamic,
    }
    network = network_class(subject.network)(**arguments | subject.arguments)
    module = deploy(network, normalisation, spec)
    if subject.shape is not None:  # BatchNorm's statistics, as training leaves them
        images = torch.from_numpy(random_inputs(subject, 8)["images"])
        with torch.no_grad():
            for _ in range(5):
                module(images)
    return module.eval(), {"input_spec": spec, "normalisation": normalisation}


def make_files(name: str, folder: Path) -> dict[str, Path]:
    """Exports every format in a process of its own."""
    samples = folder / "samples"
    samples.mkdir()
    inputs = random_inputs(SUBJECTS[name], CALIBRATION)
    np.savez(samples / "calibration.npz", total=np.array(-1), **inputs)  # type: ignore[arg-type]
    paths: dict[str, Path] = {}
    for form in FORMATS:
        arguments = form, partial(load, name), samples, folder / form, paths.get("onnx"), Options()
        made = run_child(make, *arguments, timeout=TIMEOUT, log=folder / f"{form}.log")
        paths[form] = folder / form / next(iter(made["files"]))
    return paths


def open_vino(path: Path) -> Runner:
    """An ONNX file in OpenVINO."""
    import openvino

    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    return lambda inputs: compiled(dict(inputs))[0]


def engines(name: str, paths: Mapping[str, Path], with_compile: bool) -> dict[str, Runner]:
    """Everything that runs this network here."""
    module, description = load(name)
    names = [item["name"] for item in description["input_spec"]["inputs"]]
    found = {"eager": tensor_runner(module, names)}
    if with_compile:
        found["torch.compile"] = tensor_runner(torch.compile(module), names)
    titles = {
        "torchscript": "TorchScript",
        "onnx": "ONNX Runtime",
        "onnx-int8": "ONNX Runtime INT8",
    }
    for form, path in paths.items():
        found[titles[form]] = runner_of(form, path, names, 1)
    if importlib.util.find_spec("openvino") is not None:
        found["OpenVINO"] = open_vino(paths["onnx"])
        found["OpenVINO INT8"] = open_vino(paths["onnx-int8"])
    return found


def time_all(
    name: str, paths: Mapping[str, Path], rounds: int, with_compile: bool
) -> dict[str, dict[str, float]]:
    """Engine -> "ms" (median) and "db" (signal to noise of its logits against eager's)."""
    torch.set_num_threads(1)
    runners = engines(name, paths, with_compile)
    inputs = random_inputs(SUBJECTS[name], 1)
    reference = runners["eager"](inputs)
    figures = {}
    for engine, run in runners.items():
        noise = float(((run(inputs) - reference) ** 2).sum())
        power = float((reference**2).sum())
        figures[engine] = {"db": 10 * np.log10(power / noise) if noise else np.inf}
    seconds: dict[str, list[float]] = {engine: [] for engine in runners}
    for _ in range(rounds):
        for engine, run in runners.items():
            run(inputs)  # another engine has just used the caches
            seconds[engine].append(time_call(partial(run, inputs)))
    for engine, values in seconds.items():
        figures[engine]["ms"] = 1000 * statistics.median(values)
    return figures


def time_call(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def megabytes(path: Path) -> float:
    """Size of a file and of what belongs to it."""
    return sum(part.stat().st_size for part in path.parent.iterdir()) / 1e6


def print_table(
    name: str, figures: Mapping[str, Mapping[str, float]], mb: Mapping[str, float]
) -> None:
    """Ratios to eager and to the fastest FP32 engine, and what they say about INT8."""
    eager = figures["eager"]["ms"]
    best = min(row["ms"] for engine, row in figures.items() if "INT8" not in engine)
    print(
        f"\n{name}: INT8 file {mb['onnx-int8']:.2f} MB, {mb['onnx-int8'] / mb['onnx']:.2f}x FP32's"
    )
    print(f"{'engine':<20}{'ms':>9}{'x eager':>9}{'x best FP32':>13}{'SNR dB':>8}")
    for engine, row in figures.items():
        ms = row["ms"]
        print(f"{engine:<20}{ms:>9.3f}{eager / ms:>9.2f}{best / ms:>13.2f}{row['db']:>8.0f}")
    gain = figures["ONNX Runtime"]["ms"] / figures["ONNX Runtime INT8"]["ms"]
    verdict = "INT8 pays" if pays(1 / gain) else "INT8 does not pay: FP32 ONNX is recommended"
    print(f"{verdict} ({gain:.2f}x FP32 in ONNX Runtime)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=",".join(SUBJECTS), help="default: all")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--compile", action="store_true", help="torch.compile too (slow to start)")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    machine = describe_machine()
    print(f"{machine['architecture']}, CPU flags: {', '.join(machine['cpu_flags'])}")
    print(f"one thread, batch 1, medians of {options.rounds} interleaved rounds")
    everything = {}
    for name in options.networks.split(","):
        with tempfile.TemporaryDirectory() as folder:
            paths = make_files(name, Path(folder))
            arguments = name, paths, options.rounds, options.compile
            figures = run_child(
                time_all, *arguments, timeout=TIMEOUT, log=Path(folder) / "timing.log"
            )
            sizes = {form: megabytes(path) for form, path in paths.items()}
        print_table(name, figures, sizes)
        everything[name] = {"engines": figures, "mb": sizes}
    if options.json:
        options.json.write_text(
            json.dumps(everything | {"machine": machine}, indent=1), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
