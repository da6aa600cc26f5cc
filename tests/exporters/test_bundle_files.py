"""What the reader of a bundle refuses: hostile and damaged manifests, names, files and models."""

import io
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from exporters import torchscript
from exporters.bundle_files import SCHEMA, manifest_sha256, read_manifest, schema_faults
from exporters.runtime import open_session
from tests.exporters.small_manifest import artifact, make_bundle, manifest_values, rewrite


def refused(bundle: Path, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_manifest(bundle)
    assert len(str(caught.value)) < 500


NAMES_OUTSIDE = ["../secret", "/etc/passwd", "a/../../b", "C:/x", "..\\x"]
HASH = {"sha256": "0" * 64, "bytes": 1}


@pytest.mark.parametrize("name", NAMES_OUTSIDE)
@pytest.mark.parametrize("where", ["files", "artifact", "artifact's files", "tokenizer"])
def test_names_that_lead_out_of_the_bundle(tmp_path: Path, name: str, where: str) -> None:
    bundle = make_bundle(tmp_path / "export")
    files = json.loads((bundle / "manifest.json").read_text())["files"]
    if where == "files":
        rewrite(bundle, files=files | {name: HASH})
    elif where == "artifact":
        rewrite(bundle, artifacts={"onnx": artifact("model.onnx") | {"file": name}})
    elif where == "artifact's files":
        rewrite(bundle, artifacts={"onnx": artifact("model.onnx") | {"files": {name: HASH}}})
    else:
        text = {"kind": "text", "tokenizer": name, "max_length": 4, "vocab_size": 4}
        rewrite(bundle, preprocessing=text)
    refused(bundle, "names a file outside the bundle")


def test_an_artifact_that_is_no_file_of_the_bundle(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export")
    rewrite(bundle, artifacts={"onnx": artifact("other.onnx")})
    refused(bundle, r"needs 'other\.onnx', which is not one of its files")


@pytest.mark.parametrize("linked", ["model.onnx", "preprocessing"])
def test_links(tmp_path: Path, linked: str) -> None:
    """Also one to the same content, since it could be another tomorrow."""
    bundle = make_bundle(tmp_path / "export")
    (bundle / linked).rename(tmp_path / "same")
    (bundle / linked).symlink_to(tmp_path / "same")
    refused(bundle, f"names a file outside the bundle: '{linked}")


def test_a_link_to_the_whole_bundle_is_fine(tmp_path: Path) -> None:
    make_bundle(tmp_path / "export")
    (tmp_path / "latest").symlink_to(tmp_path / "export")
    read_manifest(tmp_path / "latest")


def test_other_manifests(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no bundle at .*: it has no manifest\.json"):
        read_manifest(tmp_path)
    nested = "[" * 100_000 + "]" * 100_000
    for text in ('{"name": "a web app"}', "[1]", "null", "{", "", "1e999", nested, "9" * 5000):
        (tmp_path / "manifest.json").write_text(text)
        refused(tmp_path, "is not the manifest of a bundle")
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe")
    refused(tmp_path, "is not the manifest of a bundle")


def test_a_newer_manifest(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export")
    rewrite(bundle, manifest_version=2, artifacts="a form that is not known yet")
    refused(bundle, r"has version 2, this program reads 1: use the predict\.py inside the bundle")


def test_a_manifest_of_absurd_size(tmp_path: Path) -> None:
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(1 << 40)  # sparse
    refused(tmp_path, "is not the manifest of a bundle: 1,099,511,627,776 bytes")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"class_names": "abc"}, 'class_names is "abc", expected array'),
    ({"class_names": [1, 2]}, r"class_names\[0\] is 1, expected string"),
    ({"artifacts": []}, r"artifacts is \[\], expected object"),
    ({"artifacts": {"onnx": {"file": 3}}}, r"artifacts\.onnx has no 'files'"),
    ({"artifacts": {"onnx": artifact("model.onnx", runtime=None)}}, "runtime is null"),
    ({"files": {"model.onnx": {"sha256": "xyz", "bytes": 1}}}, "sha256 is 'xyz', expected"),
    ({"files": {"model.onnx": {"sha256": "0" * 64, "bytes": -1}}}, "bytes is -1, expected 0"),
    ({"files": {"model.onnx": {"sha256": "0" * 64, "bytes": True}}}, "bytes is true"),
    ({"calibration": {"temperature": 0}}, "calibration has no 'samples'"),
    ({"calibration": manifest_values()["calibration"] | {"temperature": 0}}, "temperature is 0"),
    ({"recommended": 5}, "recommended is 5, expected string or null"),
    ({"kind": "sound"}, "kind is \"sound\", expected one of"),
    ({"preprocessing": {"kind": "image"}}, "preprocessing has no 'channels'"),
    (
        {"preprocessing": manifest_values()["preprocessing"] | {"height": 10**9}},
        r"preprocessing\.height is 1000000000, expected 1 to 65536",
    ),
    (
        {"input_spec": {"inputs": [{"name": "x", "dtype": "object", "shape": []}], "dynamic": {}}},
        "dtype is \"object\", expected one of",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_types_and_absurd_sizes(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    bundle = make_bundle(tmp_path / "export")
    rewrite(bundle, **changes)
    refused(bundle, f"is not as a manifest must be: .*{message}")


def test_the_schema_is_a_schema_and_both_validators_agree() -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    whole = manifest_values(files={})
    whole["manifest_sha256"] = manifest_sha256(whole)
    for changes in (
        {},
        *(changes for changes, _ in WRONG),
        {"evaluation": {}},
        {"versions": {1: 2}},
    ):
        value = json.loads(json.dumps(whole | changes))
        ours = list(schema_faults(value, schema, schema["$defs"]))
        assert bool(ours) != validator.is_valid(value), changes
    missing = {key: value for key, value in whole.items() if key != "kind"}
    assert list(schema_faults(missing, schema, schema["$defs"])) == ["has no 'kind'"]


def test_a_keyword_that_our_validator_does_not_know_is_not_in_the_schema() -> None:
    known = {
        "$schema", "$ref", "$defs", "title", "description", "type", "properties", "required",
        "additionalProperties", "items", "enum", "minimum", "maximum", "pattern", "anyOf",
    }  # fmt: skip

    def keywords(schema: dict[str, Any]) -> set[str]:
        found = set(schema)
        for key in ("properties", "$defs"):
            for inner in schema.get(key, {}).values():
                found |= keywords(inner)
        for key in ("items", "additionalProperties"):
            found |= keywords(schema[key]) if key in schema else set()
        return found.union(*map(keywords, schema.get("anyOf", [])))

    assert keywords(json.loads(SCHEMA.read_text())) <= known


@pytest.mark.parametrize(
    "name", ["numpy.py", "weights.data", "exporters/x.so", "bomb.pkl", "a.npz"]
)
def test_an_extra_file_that_could_be_loaded(tmp_path: Path, name: str) -> None:
    bundle = make_bundle(tmp_path / "export")
    (bundle / name).write_bytes(b"")
    refused(bundle, f"not part of the bundle .*: {name}")


def test_an_extra_package(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export")
    (bundle / "numpy").mkdir()
    (bundle / "numpy" / "__init__.py").write_bytes(b"")
    refused(bundle, r"not part of the bundle .*: numpy/__init__\.py")


def test_a_file_of_another_size_is_refused_without_reading_it(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "export")
    with (bundle / "model.onnx").open("r+b") as file:
        file.truncate(1 << 40)  # sparse; hashing it would take many minutes
    refused(bundle, r"model\.onnx was changed after the export: 1,099,511,627,776 bytes, not 5")


def onnx_with_external_data(path: Path, location: str) -> None:
    import onnx
    from onnx import TensorProto, helper

    weights = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        weights.external_data.add(key=key, value=value)
    values = [helper.make_tensor_value_info(name, 1, [4]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    assert onnx.load(str(path), load_external_data=False)


@pytest.mark.parametrize("location", ["../secret", "sub/../../secret", "absolute", "link"])
def test_weights_outside_the_bundle_are_not_read(tmp_path: Path, location: str) -> None:
    """ONNX Runtime itself refuses them."""
    bundle, secret = tmp_path / "export", tmp_path / "secret"
    bundle.mkdir()
    np.arange(4, dtype=np.float32).tofile(secret)
    (bundle / "link").symlink_to(secret)
    location = str(secret) if location == "absolute" else location
    onnx_with_external_data(bundle / "model.onnx", location)
    with pytest.raises(ValueError, match=r"ONNX Runtime cannot load .*model\.onnx"):
        open_session(bundle / "model.onnx", 1)
    (bundle / "inside").write_bytes(secret.read_bytes())
    onnx_with_external_data(bundle / "model.onnx", "inside")
    open_session(bundle / "model.onnx", 1)


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_pickles_are_not_run(tmp_path: Path) -> None:
    """Neither as a TorchScript file, plain or in its archive, nor inside of samples."""
    from exporters.candidate import read_samples

    bomb = pickle.dumps(Bomb(tmp_path / "ran"), protocol=2)
    (tmp_path / "plain.pt").write_bytes(bomb)
    torch.save({"a": 1}, tmp_path / "archive.pt")
    with zipfile.ZipFile(tmp_path / "archive.pt") as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(tmp_path / "archive.pt", "w") as changed:
        for name, content in members.items():
            changed.writestr(name, bomb if name.endswith("data.pkl") else content)
    for name in ("plain.pt", "archive.pt"):
        with pytest.raises(RuntimeError):
            torchscript.load(tmp_path / name, ["images"], 1)({})
    content = io.BytesIO()
    np.save(content, np.array([Bomb(tmp_path / "ran")], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "samples.npz", "w") as samples:
        samples.writestr("images.npy", content.getvalue())
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_samples(tmp_path / "samples.npz")
    assert not (tmp_path / "ran").exists()
    pickle.loads(bomb)
    assert (tmp_path / "ran").exists()


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_read_only_bundle_elsewhere(tmp_path: Path) -> None:
    moved = tmp_path / "another place"
    shutil.move(make_bundle(tmp_path / "export"), moved)
    paths = [moved, *moved.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        read_manifest(moved)
    finally:
        for path in paths:
            path.chmod(0o755)
