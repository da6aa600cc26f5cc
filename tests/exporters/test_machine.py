"""Versions of libraries, also where one is installed under another name or not at all."""

import importlib.metadata
from importlib.metadata import PackageNotFoundError

import pytest

from cli import provenance
from exporters import export_flags, machine, manifest, proven

BUILDS = {
    "onnxruntime": "onnxruntime-openvino",
    "onnx": "onnx-weekly",
    "pillow": "pillow-simd",
    "pytorch-lightning": "lightning",
}


@pytest.fixture
def other_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some libraries under another name, tokenizers and onnxscript not at all."""
    version = importlib.metadata.version
    absent = {*BUILDS, "tokenizers", "onnxscript"}

    def renamed(name: str) -> str:
        if name in absent:
            raise PackageNotFoundError(name)
        return "1.2" if name in BUILDS.values() else version(name)

    modules = {"onnxruntime": ["onnxruntime-openvino"], "PIL": ["pillow-simd"],
               "onnx": ["onnx-weekly"], "pytorch_lightning": ["lightning"]}  # fmt: skip
    monkeypatch.setattr(importlib.metadata, "version", renamed)
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: modules)


@pytest.mark.usefixtures("other_builds")
def test_another_build_of_a_library_has_a_version_too() -> None:
    found = machine.library_versions(manifest.LIBRARIES)
    for name in ("onnxruntime", "onnx", "pillow"):
        assert found[name] == f"1.2 ({BUILDS[name]})"
    assert found["numpy"] == importlib.metadata.version("numpy")
    assert not {"tokenizers", "onnxscript"} & found.keys()


@pytest.mark.usefixtures("other_builds")
def test_whoever_asks_gets_an_answer(tmp_path) -> None:
    """The record of what is proven, the flag of the opset, a checkpoint's description."""
    (tmp_path / "best.ckpt").write_bytes(b"weights")
    assert proven.key_of(tmp_path / "best.ckpt", tmp_path, {"sha256": "ab"})
    with pytest.raises(export_flags.argparse.ArgumentTypeError, match=r"1\.2 \(onnxruntime-openv"):
        export_flags.opset("99")
    assert provenance.library_versions()["pytorch-lightning"] == "1.2 (lightning)"


def test_versions_of_what_is_here() -> None:
    assert machine.library_version("onnxruntime") == importlib.metadata.version("onnxruntime")
    assert machine.library_version("no-such-library") is None
