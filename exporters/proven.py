"""Formats that an earlier export has proven: taken over, if nothing they depend on has changed.

A record lies beside the samples. It holds for a format while checkpoint, samples, reference
answers, limits, library versions and the code of exporters and tasks are the same, and the format's
files, in the bundle or in what an interrupted export left, have the hashes that were proven.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tasks
from exporters.bundle import sha256_of, write_atomically
from exporters.machine import library_versions
from exporters.verdict import FAILED

RECORD = "proven.json"
CODE = (Path(__file__).parent, Path(tasks.__file__).parent)
LIBRARIES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def key_of(
    checkpoint: Path, samples: Path, reference: Mapping[str, Any], libraries: Sequence[str] = ()
) -> str | None:
    """One hash of all that a comparison depends on; None where there is nothing to compare with.

    What a format is made with and judged by (opset, limits) is added by the caller.
    """
    if not reference:
        return None
    calibration = samples / "calibration.npz"
    of_operators = {"libraries": list(libraries)} if libraries else {}
    facts = {
        "checkpoint": sha256_of(checkpoint),
        "calibration": sha256_of(calibration) if calibration.is_file() else None,
        "reference": reference["sha256"],
        "versions": library_versions(LIBRARIES),
        "code": [sha256_of(path) for folder in CODE for path in sorted(folder.glob("*.py"))],
        **of_operators,  # SHA-256 of the compiled ones
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def recall(
    samples: Path, key: str | None, format_name: str, whole_key: bool = True
) -> dict[str, Any] | None:
    """What was recorded about a format under this key, or under one that begins with it."""
    entry = read(samples).get(format_name)
    if entry is None or key is None:
        return None
    fits = entry["key"] == key if whole_key else entry["key"].startswith(key)
    return entry["outcome"] if fits else None


def remember(samples: Path, key: str | None, format_name: str, outcome: dict[str, Any]) -> None:
    """Records a format that has not failed; of one that has, the old record goes."""
    record = read(samples)
    record.pop(format_name, None)
    if key is not None and outcome["verdict"]["verdict"] != FAILED:
        record[format_name] = {"key": key, "outcome": outcome}
    with write_atomically(samples / RECORD) as file:
        file.write(json.dumps(record, indent=1).encode())


def read(samples: Path) -> dict[str, Any]:
    """The whole record; an unreadable one counts as none."""
    try:
        return dict(json.loads((samples / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
