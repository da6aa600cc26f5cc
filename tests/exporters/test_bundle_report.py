"""Finished bundles timed and compared: the tables, what is left out, and that nothing changes."""

import pickle
import zipfile
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from exporters.benchmark import longest_arrays
from exporters.bundle_report import differences, print_benchmark, print_comparison
from exporters.spec import ExportSpec
from tests.exporters.small_manifest import artifact, make_bundle, manifest_values, rewrite
from tests.exporters.test_bundle_files import Bomb
from tests.exporters.test_model_card import TEXT_SPEC

pytestmark = pytest.mark.slow


def printed(function, *arguments: object) -> str:
    output = StringIO()
    function(*arguments, False, 300.0, Console(file=output, width=200, highlight=False))
    return output.getvalue()


def evaluation(accuracy: float, *f1: float) -> dict:
    classes = [{"precision": x, "recall": x, "f1": x, "samples": 30} for x in f1]
    values = {"num_samples": 90, "whole": True, "accuracy": accuracy, "sha256": "0" * 64}
    return values | {"classes": classes}


@pytest.fixture(scope="module")
def bundles(float_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two with the same real model and other scores."""
    folder = tmp_path_factory.mktemp("bundles")
    entries = {"onnx": artifact("model.onnx", bytes=2_500_000, accuracy=90.0)}
    made = []
    for name, scores in (("a", (0.9, 0.8, 0.5)), ("b", (0.9, 0.75, 0.75))):
        values = {"artifacts": entries, "evaluation": evaluation(0.9, *scores), "num_samples": 90}
        made.append(make_bundle(folder / name / "export", float_onnx.read_bytes(), **values))
    return made


def test_a_benchmark_changes_nothing(bundles: list[Path]) -> None:
    before = {path: path.read_bytes() for path in bundles[0].rglob("*") if path.is_file()}
    lines = printed(print_benchmark, bundles[0]).splitlines()
    assert lines[0].split()[:2] == ["format", "MB"]
    assert lines[0].split()[2:8] == ["1", "x", "1", "32", "x", "1"]
    assert lines[1].split()[:2] == ["onnx", "2.50"]
    assert all(float(cell) > 0 for cell in lines[1].split()[2:])
    assert "made-up inputs" in lines[2]
    assert {path: path.read_bytes() for path in bundles[0].rglob("*") if path.is_file()} == before


def test_real_samples_beside_a_bundle_are_used(bundles: list[Path], run: Path) -> None:
    (bundles[1].parent / "samples").symlink_to(run / "samples")
    assert "validation samples" in printed(print_benchmark, bundles[1])


def test_two_side_by_side(bundles: list[Path]) -> None:
    text = printed(print_comparison, *bundles)
    lines = [line.split() for line in text.splitlines()]
    assert [line[:5] for line in lines[1:3]] == [
        ["A", "onnx", "90.00", "%", "2.50"], ["B", "onnx", "90.00", "%", "2.50"]
    ]  # fmt: skip
    assert "Same data (by fingerprint)." in text
    assert "  F1 of corner: 0.5000 -> 0.7500 (+0.2500)" in text
    assert text.index("F1 of corner") < text.index("F1 of column") < text.index("F1 of row")


def test_other_data_and_classes_are_said() -> None:
    a = manifest_values(evaluation=evaluation(0.9, 0.9, 0.8, 0.7), num_samples=90)
    b = manifest_values(
        evaluation=evaluation(0.8, 0.5, 0.6), class_names=["row", "ring"], fingerprint="other"
    )
    lines = differences(a, b)
    assert lines[0].startswith("Different data (by fingerprint)")
    assert "Classes only A has: column, corner" in lines
    assert "Classes only B has: ring" in lines
    assert lines[-1] == "  F1 of row: 0.9000 -> 0.5000 (-0.4000)"
    b["evaluation"] = None
    assert "No class scores" in differences(a, b)[-1]


def test_what_could_run_code_is_left_out(bundles: list[Path], tmp_path: Path) -> None:
    """torch.export.load unpickles, so a bundle's .pt2 is only run when it is trusted."""
    content = tmp_path / "model.onnx"
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("bomb", pickle.dumps(Bomb(tmp_path / "ran")))
    bundle = make_bundle(tmp_path / "export", content.read_bytes())
    rewrite(bundle, artifacts={"pt2": artifact("model.onnx", "torch")})
    with pytest.raises(ValueError, match="has no file that can be run here"):
        printed(print_benchmark, bundle)
    assert "pt2: left out; loading it can run code" in printed(print_comparison, bundle, bundles[0])
    rewrite(bundle, artifacts={"coreml": artifact("model.onnx", "coreml")})
    text = printed(print_comparison, bundle, bundles[0])
    assert "A coreml: this program does not know the format" in text
    assert not (tmp_path / "ran").exists()


def test_a_file_that_does_not_run_is_one_message(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export", b"no model")
    with pytest.raises(ValueError, match=r"cannot be timed: ONNX Runtime cannot load .*model.onnx"):
        printed(print_benchmark, bundle)


def test_made_up_inputs_are_as_long_as_the_model_takes() -> None:
    arrays = longest_arrays(ExportSpec.from_json(TEXT_SPEC))
    assert arrays["tokens"].tolist() == [[1, 1, 1]]
    assert arrays["lengths"].tolist() == [3]
    assert arrays["lengths"].dtype == np.int64
