"""Which formats are made without being asked for."""

import runpy
import sys
from pathlib import Path

import pytest

TABLE = Path(__file__).resolve().parents[2] / "exporters" / "__init__.py"


@pytest.mark.parametrize(
    ("version", "has_it"), [((3, 11), True), ((3, 13), True), ((3, 14), False)]
)
def test_torchscript_is_made_by_default_where_it_exists(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], has_it: bool
) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0))
    table = runpy.run_path(str(TABLE))
    assert ("torchscript" in table["DEFAULT_FORMATS"]) is has_it
    assert set(table["DEFAULT_FORMATS"]) | {"torchscript"} <= set(table["EXPORTERS"])
    assert table["DEFAULT_FORMATS"][-3:] == ("pt2", "onnx", "onnx-int8")
