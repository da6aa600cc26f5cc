"""What finished bundles can do on this machine: one measured by itself, or two side by side.

Nothing is changed. Scores are those of the manifests; times are measured now, in a
process of its own.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from exporters import EXPORTERS, NATIVE_FORMATS
from exporters.benchmark import TimedFile, benchmark_files
from exporters.bundle_files import read_manifest
from exporters.machine import describe_machine
from exporters.operators import is_library
from exporters.process import ChildError, run_child
from tasks.base import build_task

NEEDS_TRUST = ("pt2", *NATIVE_FORMATS)  # torch.export.load unpickles; the others are machine code
Latency = Sequence[Mapping[str, Any]]


def print_benchmark(bundle: Path, trust: bool, timeout: float, console: Console) -> None:
    """Times every file of a bundle.

    Raises:
        ValueError: The bundle is damaged, or none of its files can be run.
    """
    manifest = read_manifest(bundle)
    files = timed_files(bundle, manifest, "", trust, console)
    if not files:
        raise ValueError(f"{bundle} has no file that can be run here")
    latencies = measure(files, timeout)
    table = new_table("format", "MB", *settings(latencies[files[0].label]))
    for file in files:
        size = manifest["artifacts"][file.format_name]["bytes"]
        table.add_row(file.label, f"{size / 1e6:.2f}", *medians(latencies[file.label]))
    console.print(table)
    inputs = "validation samples" if files[0].samples is not None else "made-up inputs"
    console.print(f"Median ms of a batch (samples x threads), {inputs}, {machine_line(manifest)}.")


def print_comparison(
    first: Path, second: Path, trust: bool, timeout: float, console: Console
) -> None:
    """Scores, size and time of two bundles.

    Raises:
        ValueError: A bundle is damaged, or they have no format in common.
    """
    bundles = {"A": first, "B": second}
    manifests = {label: read_manifest(bundle) for label, bundle in bundles.items()}
    files = [
        file
        for label, bundle in bundles.items()
        for file in timed_files(bundle, manifests[label], f"{label} ", trust, console)
    ]
    latencies = measure(files, timeout) if files else {}
    metric = build_task(manifests["A"]).main_metric
    table = new_table("bundle", metric, "MB", *settings(next(iter(latencies.values()), [])))
    for name in dict.fromkeys(file.format_name for file in files):
        for label, manifest in manifests.items():
            entry = manifest["artifacts"].get(name)
            times = latencies.get(f"{label} {name}")
            if entry is not None and times is not None:
                score = entry.get(metric)
                shown = "" if score is None else f"{score:.2f} %"
                cells = shown, f"{entry['bytes'] / 1e6:.2f}", *medians(times)
                table.add_row(f"{label} {name}", *cells)
    console.print(table)
    for label, bundle in bundles.items():
        network = manifests[label]["network"]["name"]
        console.print(f"{label}: {bundle} ({network}), {machine_line(manifests[label])}",
                      markup=False, soft_wrap=True)  # fmt: skip
    for line in differences(manifests["A"], manifests["B"]):
        console.print(line, markup=False)


def timed_files(
    bundle: Path, manifest: Mapping[str, Any], prefix: str, trust: bool, console: Console
) -> list[TimedFile]:
    """The files of a bundle that can be run; what is left out is said."""
    samples = bundle.absolute().parent / "samples" / "validation.npz"
    files = []
    for name, entry in manifest["artifacts"].items():
        if entry["file"] is None:
            continue
        libraries = tuple(bundle.absolute() / f for f in entry["files"] or () if is_library(f))
        if name not in EXPORTERS:
            console.print(f"{prefix}{name}: this program does not know the format", markup=False)
        elif (name in NEEDS_TRUST or libraries) and not trust:
            console.print(
                f"{prefix}{name}: left out; loading it can run code that came with the bundle: add "
                "--trust where you made it yourself"
            )
        else:
            real = samples if samples.is_file() else None
            path = bundle.absolute() / entry["file"]
            spec = manifest["input_spec"]
            files.append(TimedFile(f"{prefix}{name}", name, path, spec, real, libraries))
    return files


def measure(files: list[TimedFile], timeout: float) -> dict[str, Latency]:
    """Times in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return run_child(benchmark_files, files, timeout=timeout, log=Path(folder) / "log")
        except ChildError as error:
            raise ValueError(f"cannot be timed: {error}") from error


def new_table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for i, name in enumerate(names):
        table.add_column(name, no_wrap=True, justify="right" if i else "left")
    return table


def settings(latency: Latency) -> list[str]:
    return [f"{entry['batch']} x {entry['threads']}" for entry in latency]


def medians(latency: Latency) -> list[str]:
    return [f"{entry['p50_ms']:.2f}" for entry in latency]


def machine_line(manifest: Mapping[str, Any]) -> str:
    """Whether the manifest's own figures and recommendation are of a machine like this one."""
    same = manifest["machine"].get("cpu_flags") == describe_machine()["cpu_flags"]
    return "the kind of CPU it was exported on" if same else "another kind of CPU than its export's"


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What the two were trained and scored on, and what their task says of them."""
    lines = []
    if a["fingerprint"] == b["fingerprint"]:
        lines.append("Same data (by fingerprint).")
    else:
        lines.append("Different data (by fingerprint): scores are not of the same samples.")
    task, other = build_task(a), build_task(b)
    if task.name != other.name:
        return [*lines, f"Different tasks: A is {task.name}, B {other.name}."]
    return lines + task.differences(other, a["evaluation"], b["evaluation"])
