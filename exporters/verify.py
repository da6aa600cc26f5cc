"""Gathers the evidence about one saved file, in a fresh process that has only the file.

Reference samples and logits come from the hashed evaluation file. `verdict.judge` decides.

N batch, K outputs.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from exporters import OPSET
from exporters.benchmark import EAGER
from exporters.bundle_files import sha256_of
from exporters.candidate import Loader, format_module, read_samples, runner_of
from exporters.evaluation import (
    Case,
    Evaluation,
    Runner,
    eager_runner,
    evaluate,
    read_evaluation,
    run_all,
)
from exporters.process import one_line
from exporters.spec import ExportSpec
from exporters.verdict import ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE, Evidence
from tasks.base import Task


def prove(
    format_name: str,
    folder: Path,
    files: Mapping[str, Mapping[str, Any]],
    input_spec: Mapping[str, Any],
    evaluation_file: Path | None,
    evaluation_sha256: str,
    task: Task,
    opset: int = OPSET,
) -> Evidence:
    """Loads a candidate as a user would and compares it with the checkpoint.

    Args:
        folder: Holds the candidate's files and nothing else.
        files: Name -> "sha256", as hashed when they were written; the model first.
        evaluation_file: None where there are no validation samples.
        task: What the checkpoint's outputs stand for.
        opset: That an ONNX file was asked to have.
    """
    exporter = format_module(format_name)
    evidence = Evidence(exporter.PRECISION)
    evidence.problems += changed_files(folder, files)
    if evidence.problems:
        return evidence
    spec = ExportSpec.from_json(input_spec)
    path = folder / next(iter(files))
    try:
        runner: Runner = runner_of(format_name, path, spec.names, None)
    except Exception as error:  # any fault of a runtime's loader is a finding, not a crash
        evidence.problems.append(f"does not load: {one_line(error)}")
        return evidence
    try:
        evidence.read_back = exporter.read_back(path, spec)
    except ValueError as error:
        evidence.problems.append(str(error))
    found = evidence.read_back.get("opset", opset)
    if found != opset:
        evidence.problems.append(f"opset {opset} was asked for, the file has {found}")
    if evaluation_file is not None:
        compare(runner, read_evaluation(evaluation_file, evaluation_sha256), task, evidence)
    return evidence


def changed_files(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Files whose hash is not the one from when they were written."""
    return [
        f"{name}: SHA-256 differs from when it was written"
        for name, facts in files.items()
        if not (folder / name).is_file() or sha256_of(folder / name) != facts["sha256"]
    ]


def compare(runner: Runner, evaluation: Evaluation, task: Task, evidence: Evidence) -> None:
    """Fills in parity, agreement and score."""
    for case in evaluation.cases:
        outputs = try_run(runner, case, evidence)
        if outputs is not None:
            evidence.num_cases += 1
            note_parity(outputs, case.reference, case.name, evidence)
    everything = Case("the whole validation set", evaluation.inputs, evaluation.reference)
    outputs = try_run(partial(run_all, runner), everything, evidence)
    evidence.num_samples = len(evaluation.targets)
    if outputs is not None:
        note_parity(outputs, evaluation.reference, everything.name, evidence)
        note_decisions(outputs, evaluation, task, evidence)


def try_run(runner: Runner, case: Case, evidence: Evidence) -> np.ndarray | None:
    """Logits of a case, or None with the problem noted."""
    try:
        outputs = runner(case.inputs)
    except Exception as error:  # any fault of a runtime is a finding, not a crash
        evidence.problems.append(f"{case.name}: {one_line(error)}")
        return None
    if outputs.shape != case.reference.shape:
        found, expected = list(outputs.shape), list(case.reference.shape)
        evidence.problems.append(f"{case.name}: returns {found}, expected {expected}")
        return None
    if not np.isfinite(outputs).all():
        evidence.problems.append(f"{case.name}: the logits are not finite")
        return None
    return outputs


def note_parity(outputs: np.ndarray, reference: np.ndarray, name: str, evidence: Evidence) -> None:
    """Largest difference of the logits [N,K], and where the FP32 tolerance is first broken."""
    difference = np.abs(outputs.astype(np.float64) - reference)
    evidence.max_difference = max(evidence.max_difference, float(difference.max()))
    tolerance = ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * np.abs(reference)
    if (difference > tolerance).any() and not evidence.beyond_tolerance:
        evidence.beyond_tolerance = name


def note_decisions(
    outputs: np.ndarray, evaluation: Evaluation, task: Task, evidence: Evidence
) -> None:
    """What the task says of all samples, and the noise."""
    reference = evaluation.reference.astype(np.float64)
    evidence.compared = task.compare(outputs, reference, evaluation.targets)
    noise = float(((outputs - reference) ** 2).sum())
    if noise > 0:
        evidence.sqnr_db = float(10 * np.log10((reference**2).sum() / noise))


def score_test(
    load: Loader,
    paths: Mapping[str, Path],
    input_spec: Mapping[str, Any],
    samples: Path,
    task: Task,
) -> dict[str, dict[str, Any]]:
    """Compares proven files with the checkpoint on the test split; decides nothing.

    Returns:
        EAGER and each format -> `Comparison.scores` and "whole"; without formats that failed there.
    """
    spec = ExportSpec.from_json(input_spec)
    arrays = read_samples(samples) or {}
    evaluation = evaluate(eager_runner(load, spec.names), spec, arrays, samples.name, task)
    case = Case("the test set", evaluation.inputs, evaluation.reference)
    scores = {}
    for name, path in {EAGER: None, **paths}.items():
        evidence = Evidence("fp32", num_samples=len(evaluation.targets))
        outputs: np.ndarray | None = evaluation.reference
        if path is not None:
            runner: Runner = runner_of(name, path, spec.names, None)
            outputs = try_run(partial(run_all, runner), case, evidence)
        if outputs is not None:
            compared = task.compare(outputs, evaluation.reference, evaluation.targets)
            scores[name] = compared.scores() | {"whole": evaluation.whole}
    return scores
