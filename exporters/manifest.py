"""The manifest: everything a bundle says about itself, as plain JSON values."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exporters.bundle import sha256_of
from exporters.bundle_files import MANIFEST_VERSION
from exporters.candidate import format_module
from exporters.machine import describe_machine, library_versions
from exporters.outcome import Outcome
from exporters.report import recommendation
from exporters.verdict import FAILED, PAYS, Evidence, pays, recommend
from tasks.base import Task, build_task

LIBRARIES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy", "pillow", "tokenizers")
FROM_DESCRIPTION = (
    "input_spec",
    "preprocessing",
    "normalisation",
    "fingerprint",
    "git_commit",
    "network",
)
FLAT_SETTINGS = ("seed", "precision", "max_epochs", "accumulate_grad_batches", "gradient_clip_val")
SETTING_GROUPS = ("model", "optimizer", "schedule", "loss", "ema")
UNCALIBRATED = {
    "temperature": 1.0,
    "samples": 0,
    "error_before": None,
    "error_after": None,
    "note": "there are no validation samples to fit a temperature on",
}


def build_manifest(
    checkpoint: Path,
    description: Mapping[str, Any],
    reference: Mapping[str, Any],
    eager: Mapping[str, Any],
    artifacts: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Joins what the checkpoint says with what was found; "files" and hashes are added later."""
    task = build_task(description)
    manifest: dict[str, Any] = {
        "manifest_version": MANIFEST_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "kind": description["preprocessing"]["kind"],
        "task": task.name,
        **task.values,
        **{name: description.get(name) for name in FROM_DESCRIPTION},
        "training": training_settings(description.get("config") or {}),
        "checkpoint": {
            "file": checkpoint.name,
            "sha256": sha256_of(checkpoint),
            **{key: description.get(key) for key in ("scores", "epoch", "global_step", "versions")},
        },
        "num_samples": reference.get("num_samples", 0),
        "evaluation": {k: v for k, v in reference.items() if k != "calibration"} or None,
        "calibration": reference.get("calibration", UNCALIBRATED),
        "eager": {
            task.main_metric: 100 * reference[task.main_metric] if reference else None,
            **eager,
        },
        "artifacts": artifacts,
        "recommended": recommend(artifacts),
        "machine": describe_machine(),
        "versions": library_versions(LIBRARIES),
    }
    manifest["recommendation"] = recommendation(manifest)
    return manifest


def training_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that shaped the weights, by their flags; nothing about the machine."""
    flat = {name: config[name] for name in FLAT_SETTINGS if config.get(name) is not None}
    for group in SETTING_GROUPS:
        values = config.get(group) or {}
        if values.get("enabled", True):
            flat |= {f"{group}.{k}": v for k, v in values.items() if v not in (None, False)}
    data = config.get("data") or {}
    return {f"data.{k}": data[k] for k in ("name", "batch_size") if k in data} | flat


def artifact_entry(name: str, outcome: Outcome, task: Task) -> dict[str, Any]:
    """What the manifest says about one format."""
    module = format_module(name)
    evidence = outcome.evidence
    compared = evidence is not None and evidence.num_samples > 0
    released = outcome.files is not None and outcome.verdict.verdict != FAILED
    sizes = [facts["bytes"] for facts in (outcome.files or {}).values()]
    return {
        "file": next(iter(outcome.files)) if released and outcome.files else None,
        "files": outcome.files if released else None,
        "bytes": sum(sizes),
        "runtime": module.RUNTIME,
        "precision": module.PRECISION,
        "verdict": outcome.verdict.verdict,
        "reasons": outcome.verdict.reasons,
        "notes": notes(outcome),
        **dict.fromkeys(("parity", task.main_metric, f"{task.main_metric}_difference", "paired")),
        **(comparison(evidence) if evidence is not None and compared else {}),
        "test": outcome.test,
        "latency": outcome.latency,
        "memory_mb": outcome.memory_mb,
        "time_score": outcome.time_score,
        "slowdown": evidence.slowdown if evidence is not None else None,
        "details": (outcome.details or {}) | (evidence.read_back if evidence is not None else {}),
        "seconds": outcome.seconds,
    }


def comparison(evidence: Evidence) -> dict[str, Any]:
    """The figures of the gate."""
    int8 = evidence.precision == "int8"
    return {
        "parity": {
            "max_difference": evidence.max_difference,
            "agreement": evidence.compared.agreement,
            "sqnr_db": round(evidence.sqnr_db, 2) if int8 else None,
            "flipped": evidence.compared.flipped,
            "cases": evidence.num_cases,
        },
        **evidence.compared.scores(),
    }


def notes(outcome: Outcome) -> list[str]:
    """What a reader should know though it decides nothing."""
    found = [str(note) for note in (outcome.details or {}).get("notes", [])]
    evidence = outcome.evidence
    if evidence is None or evidence.precision != "int8" or outcome.latency is None:
        return found
    if evidence.slowdown is None:
        return [*found, "not timed against FP32, which shows whether INT8 pays: export onnx too"]
    speed = f"{1 / evidence.slowdown:.2f}x as fast as FP32 in the same runtime on this machine"
    lost = "" if pays(evidence.slowdown) else f": does not pay (from {PAYS:g}x)"
    return [*found, speed + lost]
