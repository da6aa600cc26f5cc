"""What a bundle's files must be before anything is loaded from them: listed, inside, unchanged.

Copied into every bundle; imports nothing but the standard library. Hashes prove that nothing
changed by accident, not where a bundle comes from; a manifest made to do harm is refused by its
form, and a model is only ever run by ONNX Runtime, which executes no code from it.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
MANIFEST_HASH = "manifest_sha256"
MAX_MANIFEST_BYTES = 64_000_000
SCHEMA = Path(__file__).with_name("manifest.schema.json")
# An unlisted file of these kinds could be loaded by accident; any other is only mentioned.
LOADABLE = (".bin", ".data", ".dll", ".dylib", ".npy", ".npz", ".onnx", ".pickle", ".pkl", ".pt",
            ".pt2", ".pth", ".py", ".pyc", ".pyd", ".so")  # fmt: skip
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_sha256(manifest: Mapping[str, Any]) -> str:
    """SHA-256 over all of a manifest but this hash itself."""
    content = {key: value for key, value in manifest.items() if key != MANIFEST_HASH}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_manifest(bundle: Path) -> dict[str, Any]:
    """Reads a bundle's manifest, checks its form and compares every file with its hash.

    Raises:
        FileNotFoundError: There is no bundle.
        ValueError: The manifest is not as its schema says or was changed, or a file is missing,
            changed, not listed, or named in a way that leads out of the bundle.
    """
    manifest = parse_manifest(bundle / MANIFEST)
    files = manifest["files"]
    named = {manifest["preprocessing"].get("tokenizer")}
    for entry in manifest["artifacts"].values():
        named |= {entry["file"], *(entry["files"] or {})}
    for name in {*files, *named} - {None}:
        check_name(bundle, name)
        if name not in files:
            raise ValueError(f"{bundle / MANIFEST} needs {name!r}, which is not one of its files")
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        list(pool.map(lambda item: check_file(bundle, *item), files.items()))
    unexpected = [name for name in unexpected_files(bundle, files) if is_loadable(name)]
    if unexpected:
        raise ValueError(
            f"not part of the bundle {bundle}: {', '.join(unexpected[:5])} (its manifest does "
            "not list them; remove what you did not put there yourself)"
        )
    return manifest


def parse_manifest(path: Path) -> dict[str, Any]:
    """The manifest alone, its version, hash and form checked."""
    if not path.is_file():
        raise FileNotFoundError(f"no bundle at {path.parent}: it has no {MANIFEST}")
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise ValueError(f"{path} is not the manifest of a bundle: {path.stat().st_size:,} bytes")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version, expected = manifest["manifest_version"], manifest[MANIFEST_HASH]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not the manifest of a bundle: {error!r}") from error
    if version != MANIFEST_VERSION:
        raise ValueError(
            f"{path} has version {version}, this program reads {MANIFEST_VERSION}: "
            "use the predict.py inside the bundle"
        )
    if manifest_sha256(manifest) != expected:
        raise ValueError(f"{path} was changed after the export: export the checkpoint again")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    if fault := next(schema_faults(manifest, schema, schema["$defs"]), None):
        raise ValueError(f"{path} is not as a manifest must be: {fault}")
    return manifest


def schema_faults(
    value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any], place: str = ""
) -> Iterator[str]:
    """Where a value breaks a JSON schema; the keywords that manifest.schema.json uses are known."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    choices = [list(schema_faults(value, s, definitions, place)) for s in schema.get("anyOf", ())]
    if choices and all(choices):
        yield from min(choices, key=lambda faults: sum(" has no " not in f for f in faults))
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    fits = any(isinstance(value, TYPES[name]) for name in names)
    if isinstance(value, bool) and "boolean" not in names:
        fits = False
    if names and not fits:
        yield f"{place or 'it'} is {json.dumps(value)[:40]}, expected {' or '.join(names)}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {json.dumps(value)[:40]}, expected one of {schema['enum']}"
    elif isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{place} is {value[:80]!r}, expected {schema['pattern']}"
    elif isinstance(value, int | float):
        low, high = schema.get("minimum", -float("inf")), schema.get("maximum", float("inf"))
        if not low <= value <= high:
            yield f"{place} is {value}, expected {low} to {high}"
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from schema_faults(item, schema.get("items", {}), definitions, f"{place}[{i}]")
    elif isinstance(value, dict):
        known = schema.get("properties", {})
        yield from (f"{place} has no {name!r}".lstrip() for name in schema.get("required", ())
                    if name not in value)  # fmt: skip
        for key, item in value.items():
            inner = known.get(key, schema.get("additionalProperties", {}))
            yield from schema_faults(item, inner, definitions, f"{place}.{key}".lstrip("."))


def check_name(bundle: Path, name: str) -> None:
    """Refuses a name that leads out of the bundle, by itself or through a link."""
    relative = PurePosixPath(name)
    outside = relative.is_absolute() or ".." in relative.parts or "\\" in name or ":" in name
    if outside or (bundle / name).resolve() != bundle.resolve() / name:
        raise ValueError(f"{bundle / MANIFEST} names a file outside the bundle: {name!r}")


def check_file(bundle: Path, name: str, facts: Mapping[str, Any]) -> None:
    """Refuses a file that is missing or changed."""
    path = bundle / name
    if not path.is_file():
        raise ValueError(f"{path} is missing from the bundle")
    size = path.stat().st_size
    if size != facts["bytes"]:
        expected = f"{facts['bytes']:,} bytes"
        raise ValueError(f"{path} was changed after the export: {size:,} bytes, not {expected}")
    if sha256_of(path) != facts["sha256"]:
        raise ValueError(f"{path} was changed after the export: its SHA-256 is not the manifest's")


def unexpected_files(bundle: Path, files: Mapping[str, Any]) -> list[str]:
    """Files in the bundle's folders, and packages beside them, that its manifest does not list.

    Other folders are no concern of ours: an environment may lie in one, what failed in another.
    """
    folders = {(bundle / name).parent for name in files} | {bundle}
    inside = [path for folder in folders for path in folder.iterdir()]
    packages = [path / "__init__.py" for path in inside if (path / "__init__.py").exists()]
    found = {p.relative_to(bundle).as_posix() for p in [*inside, *packages] if not p.is_dir()}
    return sorted(found - {*files, MANIFEST})


def is_loadable(name: str) -> bool:
    """Whether a runtime or Python might take a file for its own."""
    return PurePosixPath(name).suffix.lower() in LOADABLE


def choose_artifact(manifest: Mapping[str, Any], name: str | None) -> str:
    """The artifact asked for, or the recommended one.

    Raises:
        ValueError: It is not in the bundle, or only PyTorch can run it.
    """
    usable = [k for k, entry in manifest["artifacts"].items() if entry["file"] is not None]
    runnable = [k for k in usable if manifest["artifacts"][k]["runtime"] == "onnxruntime"]
    chosen = name or manifest["recommended"] or next(iter(runnable), None)
    if chosen is None or (name and name not in usable):
        entry = manifest["artifacts"].get(name, {})
        why = f" ({entry['verdict']}: {'; '.join(entry['reasons'])})" if entry else ""
        raise ValueError(
            f"no artifact {name or ''} here{why}; it has {', '.join(usable) or 'none'}"
        )
    if chosen not in runnable:
        raise ValueError(
            f"artifact {chosen!r} needs PyTorch, and this predictor runs without: load "
            f"{manifest['artifacts'][chosen]['file']} there, or choose --artifact "
            f"{' or '.join(runnable) or '(no ONNX file here)'}"
        )
    return chosen
