"""Bundles that are changed, incomplete, of another make, or that lead out of their folder."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bad_case import ABSENT, Case, cut, flip, replace_at
from benchmarks.bad_images import encoded, picture
from exporters.bundle_files import MANIFEST, MANIFEST_HASH, manifest_sha256

ODD: tuple[Any, ...] = (ABSENT, None, 5, "text", [], {})
Change = Callable[[Path], object]


def write(bundle: Path, name: str, content: bytes) -> None:
    (bundle / name).write_bytes(content)


def remove(bundle: Path, name: str) -> None:
    (bundle / name).unlink()


def damage(bundle: Path, name: str) -> None:
    write(bundle, name, flip((bundle / name).read_bytes() or b"x", 1))


def link(bundle: Path, name: str) -> None:
    """The file lies beside the bundle, a link to it inside."""
    target = bundle.parent / "elsewhere"
    (bundle / name).rename(target)
    (bundle / name).symlink_to(target)


def sign(bundle: Path, place: str, value: Any) -> None:
    """Another value in the manifest, and its hash with it: as whoever means harm would do."""
    manifest = json.loads((bundle / MANIFEST).read_text())
    replace_at(manifest, place.split("|"), value)
    manifest[MANIFEST_HASH] = manifest_sha256(manifest)
    (bundle / MANIFEST).write_text(json.dumps(manifest))


def sign_file(bundle: Path, name: str, content: bytes) -> None:
    """Another content of a file, with a fitting hash in the manifest."""
    write(bundle, name, content)
    facts = json.loads((bundle / MANIFEST).read_text())["files"][name]
    changed = {key: len(content) if isinstance(facts[key], int) else facts[key] for key in facts}
    sign(bundle, f"files|{name}", changed | {"sha256": hashlib.sha256(content).hexdigest()})


def file_changes(manifest: dict[str, Any]) -> Iterator[tuple[str, bool, Change]]:
    """Name, whether it must be refused, what is done to a copy of the bundle."""
    for name in (*sorted(manifest["files"]), MANIFEST):
        yield f"no {name}", True, partial(remove, name=name)
        yield f"changed {name}", True, partial(damage, name=name)
        yield f"{name} is a link", name != MANIFEST, partial(link, name=name)
    contents = {
        "no JSON": b"{", "empty": b"", "a list": b"[]", "a number": b"5", "deep": b"[" * 100_000,
        "null": b"null", "NaN": b'{"manifest_version": NaN}', "binary": bytes(range(256)),
        "not signed": json.dumps(manifest | {"class_names": ["x"]}).encode(),
    }  # fmt: skip
    for title, content in contents.items():
        yield f"manifest: {title}", True, partial(write, name=MANIFEST, content=content)
    yield "an extra file", False, partial(write, name="extra.txt", content=b"x")
    yield "an extra library", True, partial(write, name="extra.so", content=b"x")


def signed_changes(manifest: dict[str, Any]) -> Iterator[tuple[str, bool, Change]]:
    yield "a newer version", True, partial(sign, place="manifest_version", value=99)
    for name in ("../out", "/etc/passwd", "a/../../out", "..\\out", "C:\\out", "\0", "", "."):
        facts = {"sha256": "0" * 64, "bytes": 1}
        yield f"a file called {name!r}", True, partial(sign, place=f"files|{name}", value=facts)
    places = [key for key in manifest if key != MANIFEST_HASH]
    places += [f"preprocessing|{key}" for key in manifest["preprocessing"]]
    places += [f"artifacts|onnx|{key}" for key in manifest["artifacts"]["onnx"]]
    for place in places:
        for value in (*ODD, -1, 10**9) if "|" in place else ODD:
            title = "absent" if value is ABSENT else repr(value)
            yield f"signed: {place}: {title}", False, partial(sign, place=place, value=value)
    names = manifest["class_names"]
    yield "fewer classes", True, partial(sign, place="class_names", value=names[:-1])
    yield "more classes", True, partial(sign, place="class_names", value=[*names, "x"])


def model_changes(name: str, whole: bytes) -> Iterator[tuple[str, bool, Change]]:
    """Damaged networks whose hashes fit."""
    contents = {f"cut to {share:.0%}": cut(whole, share) for share in (0.0, 0.3, 0.9)}
    contents |= {f"flipped {seed}": flip(whole, seed, 30) for seed in range(6)}
    contents["text"] = b"no model"
    for title, content in contents.items():
        refused = not title.startswith("flipped")
        yield f"signed: {name} {title}", refused, partial(sign_file, name=name, content=content)


def bundle_cases(bundle: Path) -> Iterator[Case]:
    arguments = ("--model", "bundle", "--artifact", "onnx", "x.png")
    manifest = json.loads((bundle / MANIFEST).read_text())
    onnx = str(manifest["artifacts"]["onnx"]["file"])
    changes = [*file_changes(manifest), *signed_changes(manifest)]
    changes += model_changes(onnx, (bundle / onnx).read_bytes())
    for name, refused, change in changes:

        def prepare(folder: Path, change: Change = change) -> None:
            shutil.copytree(bundle, folder / "bundle")
            (folder / "x.png").write_bytes(encoded(picture(), "PNG"))
            change(folder / "bundle")

        yield Case("bundles", name, "predict", arguments, prepare, refused)
