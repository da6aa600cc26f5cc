"""The evaluation file: validation samples, and the checkpoint's answers to them in eager mode.

Written by a fresh process before any format is proven, hashed, and kept outside the bundle. It
holds the whole validation set with the reference logits, and small cases that sweep the batch size
(and, for text, the length and the padding).

N batch, L tokens, K outputs.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from exporters.bundle import sha256_of, write_atomically
from exporters.candidate import Loader, precision_of, read_samples
from exporters.operators import Translations
from exporters.program import probe
from exporters.spec import ExportSpec, assert_exportable
from tasks.base import Task, build_task

Runner = Callable[[Mapping[str, np.ndarray]], np.ndarray]
"""Input arrays by name -> logits float32 [N,K]."""

BATCHES = (1, 2, 3, 7, 8, 32)
LENGTHS = (1, 5, 17, 60)
RUN_BATCH = 64


@dataclass(frozen=True)
class Case:
    """Inputs of one small batch and the reference logits [N,K] for it."""

    name: str
    inputs: dict[str, np.ndarray]
    reference: np.ndarray


@dataclass(frozen=True)
class Evaluation:
    """The whole file."""

    inputs: dict[str, np.ndarray]
    targets: np.ndarray  # [M,...], as the task has them
    reference: np.ndarray  # float32 [M,K]
    cases: list[Case]
    whole: bool = True  # not a part of the split; known only where it was made


def tensor_runner(module: Callable[..., Any], names: list[str]) -> Runner:
    """Wraps anything that takes tensors by position."""

    def run(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        with torch.inference_mode():
            tensors = [torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in names]
            return module(*tensors).numpy()

    return run


def run_all(runner: Runner, inputs: Mapping[str, np.ndarray], batch: int = RUN_BATCH) -> np.ndarray:
    """Logits [M,K] for arrays of any length, batch by batch."""
    total = len(next(iter(inputs.values())))
    parts = [
        runner({name: array[start : start + batch] for name, array in inputs.items()})
        for start in range(0, total, batch)
    ]
    return np.concatenate(parts)


def sweep(
    spec: ExportSpec, inputs: Mapping[str, np.ndarray], runner: Runner
) -> Iterator[tuple[str, dict[str, np.ndarray], np.ndarray]]:
    """Small batches of real samples with the runner's logits: sizes, lengths, padding."""
    total = len(inputs[spec.names[0]])
    start = 0
    for size in BATCHES:
        rows = np.arange(start, start + size) % total  # other rows for each size
        start += size
        batch = {name: array[rows] for name, array in inputs.items()}
        yield f"batch {size}", batch, runner(batch)
    if spec.lengths_name is None:
        return
    longest = spec.dynamic["length"][1]
    rows = np.arange(min(3, total))
    for length in sorted({*(n for n in LENGTHS if n < longest), longest}):
        batch = with_length(spec, {name: array[rows] for name, array in inputs.items()}, length)
        yield f"length {length}", batch, runner(batch)
    yield alone_against_padded(spec, inputs, runner)


def with_length(
    spec: ExportSpec, inputs: Mapping[str, np.ndarray], length: int
) -> dict[str, np.ndarray]:
    """Cuts or pads texts to one length L; the first row fills it wholly."""
    changed: dict[str, np.ndarray] = {}
    for item in spec.inputs:
        array = inputs[item.name]
        if item.name == spec.lengths_name:
            array = np.minimum(array, length)
            array[0] = length
        elif "length" in item.shape:
            axis = item.shape.index("length")
            missing = max(0, length - array.shape[axis])
            padding = [(0, missing if i == axis else 0) for i in range(array.ndim)]
            array = np.pad(array, padding).take(np.arange(length), axis=axis)
            if item.shape == ("batch", "length"):
                array[0] = np.where(array[0] == 0, max(1, int(array[0, 0])), array[0])
        changed[item.name] = array
    return changed


def alone_against_padded(
    spec: ExportSpec, inputs: Mapping[str, np.ndarray], runner: Runner
) -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    """The shortest text by itself; its reference comes from a padded batch."""
    lengths = inputs[str(spec.lengths_name)]
    row = int(np.argmin(lengths))
    others = [row, *range(min(3, len(lengths)))]
    padded = runner({name: array[others] for name, array in inputs.items()})
    alone = {
        item.name: array[:, : max(1, int(lengths[row]))] if "length" in item.shape else array
        for item, array in ((item, inputs[item.name][[row]]) for item in spec.inputs)
    }
    return "alone, against the same text padded in a batch", alone, padded[:1]


def write_reference(
    load: Loader,
    samples: Path,
    evaluation_file: Path,
    translations: Translations | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs the checkpoint in eager mode over the validation samples and writes the file.

    Returns:
        The checkpoint's description, and "sha256", "num_samples", "whole", "calibration" and what
        the task says of the reference; an empty dict where there are no samples.

    Raises:
        ValueError: Weights are not finite, samples do not fit, or the recorded score differs.
    """
    module, description = load()
    assert_exportable(module)
    spec = ExportSpec.from_json(description["input_spec"])
    arrays = read_samples(samples / "validation.npz")
    _, description["probe"] = probe(
        module, spec.example(arrays), spec.dynamic_shapes(), translations
    )
    if arrays is None:
        return description, {}
    runner, task = tensor_runner(module, spec.names), build_task(description)
    evaluation = evaluate(runner, spec, arrays, "validation.npz", task)
    inputs, targets, reference = evaluation.inputs, evaluation.targets, evaluation.reference
    found = task.evaluate(reference, targets)
    if evaluation.whole:
        check_score(found[task.main_metric], len(targets), description, task)
    cases = [Case(*case) for case in sweep(spec, inputs, runner)]
    write_evaluation(evaluation_file, replace(evaluation, cases=cases))
    facts = {
        "num_samples": len(targets),
        "whole": evaluation.whole,
        **found,
        "calibration": task.calibrate(reference, targets),
    }
    return description, facts | {"sha256": sha256_of(evaluation_file)}


def evaluate(
    runner: Runner, spec: ExportSpec, arrays: Mapping[str, np.ndarray], origin: str, task: Task
) -> Evaluation:
    """Runs all samples of a split; without the small cases.

    Raises:
        ValueError: Inputs do not fit, there are none, or a target is not one of the task.
    """
    spec.check_arrays(arrays, origin)
    targets = arrays["targets"]
    if len(targets) == 0:
        raise ValueError(f"{origin} holds no samples")
    inputs = {name: arrays[name] for name in spec.names}
    if bad := task.bad_target(targets):
        raise ValueError(f"{origin}: {bad}")
    reference = run_all(runner, inputs)
    whole = int(arrays.get("total", -1)) == len(targets)
    return Evaluation(inputs, targets, reference, [], whole)


def check_score(score: float, num_samples: int, description: Mapping[str, Any], task: Task) -> None:
    """Compares with the score that training recorded for this very checkpoint.

    Two samples (at least 0.2 points) may differ, as rounding does; 2 points after training in low
    precision.

    Raises:
        ValueError: The loaded model is not the trained one.
    """
    recorded = (description.get("scores") or {}).get(f"val/{task.main_metric}")
    limited = (description.get("config") or {}).get("limit_val_batches") not in (None, 1.0)
    if recorded is None or limited:
        return
    low_precision = "16" in precision_of(description)
    allowed = max(0.02 if low_precision else 0.002, 2 / num_samples)
    if not abs(score - recorded) <= allowed:
        raise ValueError(
            f"the loaded model is not the one that was trained on these data: it scores "
            f"{score:.2%} on the {num_samples} validation samples, and the checkpoint "
            f"recorded {recorded:.2%}"
        )


def write_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Writes all arrays into one npz without pickles."""
    arrays = {f"input.{name}": array for name, array in evaluation.inputs.items()}
    arrays |= {"targets": evaluation.targets, "reference": evaluation.reference}
    for i, case in enumerate(evaluation.cases):
        arrays |= {f"case.{i}.input.{name}": array for name, array in case.inputs.items()}
        arrays[f"case.{i}.reference"] = case.reference
    names = json.dumps([case.name for case in evaluation.cases])
    arrays["case_names"] = np.array(names)
    with write_atomically(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_evaluation(path: Path, sha256: str) -> Evaluation:
    """Reads the file back.

    Raises:
        ValueError: It is not the file that was hashed.
    """
    if sha256_of(path) != sha256:
        raise ValueError(f"{path.name} has changed since the reference was computed")
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file.items())

    def inputs_of(prefix: str) -> dict[str, np.ndarray]:
        found = (key for key in arrays if key.startswith(prefix))
        return {key.removeprefix(prefix): arrays[key] for key in found}

    cases = [
        Case(name, inputs_of(f"case.{i}.input."), arrays[f"case.{i}.reference"])
        for i, name in enumerate(json.loads(str(arrays["case_names"])))
    ]
    return Evaluation(inputs_of("input."), arrays["targets"], arrays["reference"], cases)


def eager_runner(load: Loader, names: list[str]) -> Runner:
    """The checkpoint itself."""
    module: nn.Module = load()[0]
    return tensor_runner(module, names)
