"""The bundle's folder: staged beside its place, proven, then put there by a rename.

A format's file is made under `candidates/`; only with a verdict other than "failed" does it get its
final name, else it goes to `rejected/` with the reason. A run that is killed leaves the old bundle
as it was.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from exporters import bundle_files, runtime
from exporters.bundle_files import MANIFEST, sha256_of
from exporters.bundle_place import (
    REJECTED,
    SET_ASIDE,
    UNFINISHED,
    exchange,
    failed_folder,
    older_manifest,
    stage_folder,
    sync,
)
from exporters.model_card import model_card
from exporters.verdict import why_not_replace
from preprocessing.reader import PARTS, check_preprocessing

__all__ = ["Stage", "describe_files", "sha256_of", "write_atomically"]

CANDIDATES = "candidates"
CARD = "README.md"
# what predict.py imports
BUNDLE_PARTS = ("answers.py", "bundle_files.py", "command_line.py", "manifest.schema.json")


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears whole or not at all: written beside its place, synced, renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def describe_files(folder: Path, first: str) -> dict[str, dict[str, Any]]:
    """SHA-256 and bytes of every file in a folder; the named one first."""
    paths = sorted((p for p in folder.iterdir() if p.is_file()), key=lambda p: (p.name != first, p))
    return {p.name: {"sha256": sha256_of(p), "bytes": p.stat().st_size} for p in paths}


def has_files(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a folder holds these files with these hashes."""
    return all(
        (folder / name).is_file() and sha256_of(folder / name) == facts["sha256"]
        for name, facts in files.items()
    )


class Stage:
    """A bundle being made, beside its place; `older` is the manifest of what lies there."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.older = older_manifest(output)
        self.renamed: list[Path] = []  # files of the user's whose names the bundle needs
        self.folder = stage_folder(output)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / UNFINISHED).touch()
        for left in self.folder.iterdir():  # by an export that was interrupted
            if left.name not in (CANDIDATES, UNFINISHED):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        (self.folder / CANDIDATES).mkdir(exist_ok=True)

    def candidate(self, format_name: str) -> Path:
        """Where a format's files are made and proven."""
        return self.folder / CANDIDATES / format_name

    def clear(self, format_name: str) -> None:
        """Removes what an interrupted export left of a format."""
        shutil.rmtree(self.candidate(format_name), ignore_errors=True)

    def recover(self, format_name: str, files: Mapping[str, Mapping[str, Any]]) -> bool:
        """Makes files of an earlier export the candidate, if they are still as they were proven."""
        folder = self.candidate(format_name)
        if has_files(folder, files):
            return True
        if not has_files(self.output, files):
            return False
        self.clear(format_name)
        folder.mkdir()
        for name in files:
            shutil.copyfile(self.output / name, folder / name)
        return has_files(folder, files)

    def accept(self, format_name: str, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Gives proven files their final names.

        Raises:
            ValueError: A file is no longer the one that was proven.
        """
        for name, facts in files.items():
            source = self.candidate(format_name) / name
            if sha256_of(source) != facts["sha256"]:
                raise ValueError(f"{name} changed between its proof and its release")
            source.replace(self.folder / name)

    def reject(self, format_name: str, reasons: list[str], log: str) -> None:
        """Keeps what a failed format left, with the reason, apart from the good files."""
        target = self.folder / REJECTED / format_name
        target.parent.mkdir(exist_ok=True)
        if self.candidate(format_name).is_dir():
            self.candidate(format_name).replace(target)
        target.mkdir(exist_ok=True)
        text = "\n".join(reasons) + (f"\n\n{log}" if log else "") + "\n"
        (target / "reason.txt").write_text(text, encoding="utf-8")

    def add_runtime(self, preprocessing: Mapping[str, Any], files: Mapping[str, str]) -> None:
        """Copies the torch-free predictor and what its preprocessing needs.

        Raises:
            ValueError: It would hold something else than a tokenizer, or no reader is known.
        """
        check_preprocessing(preprocessing, files)
        shutil.copyfile(runtime.__file__, self.folder / "predict.py")
        here = Path(runtime.__file__).parent
        (self.folder / "exporters").mkdir()
        (self.folder / "exporters" / "__init__.py").write_text(
            '"""Parts of predict.py."""\n', encoding="utf-8"
        )
        for name in BUNDLE_PARTS:
            shutil.copyfile(here / name, self.folder / "exporters" / name)
        for name in ("preprocessing", "tasks"):
            (self.folder / name).mkdir()
        needed = ["__init__.py", "reader.py", "sources.py", "table*.py"]
        needed += PARTS[preprocessing["kind"]]
        needed = [f"preprocessing/{pattern}" for pattern in needed] + ["tasks/*.py"]
        for source in (path for pattern in needed for path in here.parent.glob(pattern)):
            shutil.copyfile(source, self.folder / source.parent.name / source.name)
        for name, content in files.items():
            (self.folder / name).write_text(content, encoding="utf-8")

    def finish(self, manifest: dict[str, Any], overwrite: bool = False) -> Path:
        """Writes card and manifest over everything that is there, and puts the bundle in place.

        Args:
            overwrite: Also in place of an older one that proves more.

        Returns:
            Where it is: `<output>.failed` where it must not replace the older one.
        """
        reason = None if overwrite or self.older is None else why_not_replace(self.older, manifest)
        if reason is not None:
            manifest[SET_ASIDE] = reason
            self.output = failed_folder(self.output)
        shutil.rmtree(self.folder / CANDIDATES)
        manifest["files"] = self.describe()
        card = model_card(manifest)
        (self.folder / CARD).write_text(card, encoding="utf-8")
        manifest["files"] = self.describe()
        manifest["manifest_sha256"] = bundle_files.manifest_sha256(manifest)
        for name in manifest["files"]:
            with (self.folder / name).open("r+b") as file:  # Windows syncs no file opened to read
                os.fsync(file.fileno())
        with write_atomically(self.folder / MANIFEST) as file:
            file.write(json.dumps(manifest, indent=2, ensure_ascii=False).encode())
        self.renamed = exchange(self.folder, self.output)
        return self.output

    def describe(self) -> dict[str, dict[str, Any]]:
        """SHA-256 and bytes of everything that belongs to the bundle."""
        paths = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        names = {path.relative_to(self.folder): path for path in paths}
        return {
            name.as_posix(): {"sha256": sha256_of(path), "bytes": path.stat().st_size}
            for name, path in names.items()
            if name.parts[0] not in (REJECTED, UNFINISHED)
        }

    def discard(self) -> None:
        """Removes a bundle that was not finished."""
        shutil.rmtree(self.folder, ignore_errors=True)
