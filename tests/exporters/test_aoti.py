"""Machine code: what is said where it cannot be made (what it computes: test_traps.py)."""

import shutil
from pathlib import Path

import pytest

from exporters import aoti
from tests.exporters.other_networks import ReusedLayers, bench


def test_without_a_compiler_it_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    description = bench(ReusedLayers(), tmp_path).job.description
    assert aoti.unavailable(description) is None
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert (
        aoti.unavailable(description) == "needs a C++ compiler, and there is none on this machine"
    )


def test_what_is_no_package_does_not_load(tmp_path: Path) -> None:
    made = bench(ReusedLayers(), tmp_path)
    path = tmp_path / "files" / aoti.FILE
    path.parent.mkdir()
    path.write_bytes(b"not a package")
    verdict = made.judge("aoti", path)
    assert verdict.verdict == "failed"
    assert verdict.reasons[0].startswith("does not load: ")
