"""A bundle with a whole manifest around made-up files, for tests that need no real model."""

import json
from pathlib import Path
from typing import Any

from exporters.bundle import Stage, describe_files
from exporters.bundle_files import manifest_sha256
from exporters.manifest import UNCALIBRATED

IMAGE = {
    "kind": "image", "channels": 1, "height": 8, "width": 8, "resize": "exact", "resize_to": None
}  # fmt: skip


def artifact(file: str | None, runtime: str = "onnxruntime", **changes: Any) -> dict[str, Any]:
    return {
        "file": file,
        "files": None if file is None else {file: {"sha256": "0" * 64, "bytes": 5}},
        "bytes": 5,
        "runtime": runtime,
        "precision": "fp32",
        "verdict": "passed",
        "reasons": [],
        "latency": None,
        **changes,
    }


def manifest_values(**changes: Any) -> dict[str, Any]:
    """All that a manifest says, but for what `Stage.finish` adds."""
    return {
        "manifest_version": 1,
        "created": "2026-01-01T00:00:00+00:00",
        "kind": "image",
        "class_names": ["row", "column", "corner"],
        "input_spec": {
            "inputs": [{"name": "images", "dtype": "uint8", "shape": ["batch", 1, 8, 8]}],
            "dynamic": {"batch": [1, 64]},
        },
        "preprocessing": IMAGE,
        "normalisation": {"mean": [0.1], "std": [0.3]},
        "fingerprint": "ab12",
        "git_commit": None,
        "network": {"name": "small_cnn", "arguments": {"width": 4}},
        "training": {"data.name": "digits", "seed": 0},
        "checkpoint": {"file": "best.ckpt", "sha256": "0" * 64, "scores": None, "epoch": 3},
        "num_samples": 0,
        "evaluation": None,
        "calibration": UNCALIBRATED,
        "eager": {"accuracy": None, "latency": None, "memory_mb": None},
        "artifacts": {},
        "recommended": None,
        "recommendation": "Recommended: none; no format passed.",
        "machine": {"architecture": "x86_64"},
        "versions": {"numpy": "2.0"},
        **changes,
    }


def make_bundle(
    output: Path,
    content: bytes = b"model",
    files: dict[str, str] | None = None,
    **changes: Any,
) -> Path:
    """A bundle with one artifact."""
    stage = Stage(output)
    folder = stage.candidate("onnx")
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(content)
    stage.accept("onnx", describe_files(folder, "model.onnx"))
    values = manifest_values(**changes)
    stage.add_runtime(values["preprocessing"], files or {})
    entries = {"artifacts": {"onnx": artifact("model.onnx")}, "recommended": "onnx"}
    stage.finish(values | entries | changes)
    return output


def rewrite(bundle: Path, **changes: Any) -> None:
    """Puts values into a manifest and makes its hash valid again, as someone hostile would."""
    path = bundle / "manifest.json"
    manifest = json.loads(path.read_text()) | changes
    manifest["manifest_sha256"] = manifest_sha256(manifest)
    path.write_text(json.dumps(manifest))
