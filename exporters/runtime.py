"""The torch-free predictor: a bundle's files are checked, run by ONNX Runtime, answers printed.

A copy of this file is `predict.py` in every bundle. It imports numpy, onnxruntime, `preprocessing`
(with Pillow or tokenizers) and nothing else. Hashes prove that nothing changed by accident, not
where a bundle comes from.

N batch, K classes.
"""

import argparse
import csv
import difflib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import numpy as np

if __name__ == "__main__":
    sys.dont_write_bytecode = True  # a bundle stays as it was shipped

from preprocessing.reader import Reader, find_files, make_reader  # noqa: E402

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
MANIFEST_HASH = "manifest_sha256"

Infer = Callable[[Mapping[str, np.ndarray]], np.ndarray]
Show = Callable[[list[str], list[list[str]]], None]


# ---- bundles ---------------------------------------------------------------------------


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_sha256(manifest: Mapping[str, Any]) -> str:
    """SHA-256 over all of a manifest but this hash itself."""
    content = {key: value for key, value in manifest.items() if key != MANIFEST_HASH}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_manifest(bundle: Path) -> dict[str, Any]:
    """Reads a bundle's manifest and compares every file with its hash.

    Raises:
        FileNotFoundError: There is no bundle.
        ValueError: A file is missing, changed, or named in a way that leads out of the bundle.
    """
    path = bundle / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"no bundle at {bundle}: it has no {MANIFEST}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version, expected = manifest["manifest_version"], manifest[MANIFEST_HASH]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not the manifest of a bundle: {error!r}") from error
    if version != MANIFEST_VERSION:
        raise ValueError(
            f"{path} has version {version}, this program reads {MANIFEST_VERSION}: "
            "use the predict.py inside the bundle"
        )
    if manifest_sha256(manifest) != expected:
        raise ValueError(f"{path} was changed after the export: export the checkpoint again")
    for name, facts in manifest["files"].items():
        check_file(bundle, name, facts["sha256"])
    return manifest


def check_file(bundle: Path, name: str, sha256: str) -> None:
    """Refuses a file that is missing, changed, or outside the bundle."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or "\\" in name or ":" in name:
        raise ValueError(f"{bundle / MANIFEST} names a file outside the bundle: {name!r}")
    path = bundle / relative
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"{path} is missing from the bundle")
    if sha256_of(path) != sha256:
        raise ValueError(f"{path} was changed after the export: its SHA-256 is not the manifest's")


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


def open_session(path: Path, threads: int | None) -> Any:
    """An ONNX Runtime session on the CPU; `threads` None leaves the number to it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only; they are raised as well
    if threads is not None:
        options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run_session(session: Any, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Arrays by name -> logits float32 [N,K]."""
    return session.run(None, dict(inputs))[0]


# ---- predictions -----------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """The most probable classes of one file, best first."""

    file: str
    classes: list[tuple[str, float]]


def softmax(logits: np.ndarray) -> np.ndarray:
    """[N,K] -> probabilities float64 [N,K]."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def predict(
    arguments: argparse.Namespace, reader: Reader, infer: Infer, class_names: Sequence[str]
) -> Iterator[Prediction | str]:
    """Predictions in the order of the files; a text instead where a file could not be read."""
    paths: list[Path] = []
    items: list[Any] = []
    for path in find_files(arguments.files, reader.extensions):
        try:
            items.append(reader.read(path))
            paths.append(path)
        except (ValueError, OSError) as error:
            yield str(error)
        if len(items) == arguments.batch_size:
            yield from answer(paths, reader.collate(items), infer, class_names, arguments.top_k)
            paths, items = [], []
    if items:
        yield from answer(paths, reader.collate(items), infer, class_names, arguments.top_k)


def answer(
    paths: list[Path],
    inputs: Mapping[str, np.ndarray],
    infer: Infer,
    class_names: Sequence[str],
    top_k: int,
) -> Iterator[Prediction]:
    """Runs one batch."""
    probabilities = softmax(infer(inputs))
    best = np.argsort(-probabilities, axis=1, kind="stable")[:, :top_k]
    for path, row, order in zip(paths, probabilities, best, strict=True):
        yield Prediction(str(path), [(class_names[k], float(row[k])) for k in order])


def print_plain_table(header: list[str], rows: list[list[str]]) -> None:
    """Columns divided by two spaces."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in [header, *rows]:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


def report(predictions: Iterator[Prediction | str], form: str, show: Show) -> int:
    """Prints predictions on stdout and faults on stderr; 1 where a file could not be read."""
    faults, rows, width = 0, [], 0
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if form == "csv":
        writer.writerow(["file", "rank", "class", "probability"])
    for item in predictions:
        if isinstance(item, str):
            faults += 1
            print(f"error: {item}", file=sys.stderr)
        elif form == "csv":
            for rank, (name, p) in enumerate(item.classes, start=1):
                writer.writerow([item.file, rank, name, f"{p:.6f}"])
        elif form == "jsonl":
            found = [{"class": name, "probability": round(p, 6)} for name, p in item.classes]
            print(json.dumps({"file": item.file, "predictions": found}, ensure_ascii=False))
        else:
            rows.append([item.file, *(s for name, p in item.classes for s in (name, f"{p:.2%}"))])
            width = len(item.classes)
    if rows:
        header = ["file", "class", "probability"]
        header += [text for k in range(2, width + 1) for text in (f"class {k}", "probability")]
        show(header, rows)
    return 1 if faults else 0


# ---- command line ----------------------------------------------------------------------


class OneLineParser(argparse.ArgumentParser):
    """Answers a wrong argument with one line, the nearest valid flag, and exit code 2."""

    def error(self, message: str) -> NoReturn:
        wrong = next((word for word in message.split() if word.startswith("--")), "")
        near = difflib.get_close_matches(wrong.split("=")[0], self._option_string_actions, 1)
        hint = f"; did you mean {near[0]}?" if near and "unrecognized" in message else ""
        self.exit(2, f"error: {message}{hint}\n")


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def predict_parser(description: str) -> argparse.ArgumentParser:
    """The flags that the bundle's predict.py and the project's share."""
    parser = OneLineParser(prog="predict.py", description=description, allow_abbrev=False)
    parser.add_argument("files", nargs="+", help="files, or folders of files")
    parser.add_argument("--artifact", help="which model of the bundle; default: the recommended")
    parser.add_argument("--format", choices=("table", "csv", "jsonl"), default="table")
    parser.add_argument("--top_k", type=positive, default=1, help="classes a file")
    parser.add_argument("--threads", type=positive, help="CPU threads; default: all")
    parser.add_argument("--batch_size", type=positive, default=32)
    return parser


def predict_with_bundle(arguments: argparse.Namespace, bundle: Path, show: Show) -> int:
    """Checks the bundle, then predicts for all files."""
    manifest = read_manifest(bundle)
    name = choose_artifact(manifest, arguments.artifact)
    entry = manifest["artifacts"][name]
    if entry["verdict"] != "passed":
        print(f"note: {name} is {entry['verdict']}: {'; '.join(entry['reasons'])}", file=sys.stderr)
    session = open_session(bundle / entry["file"], arguments.threads)
    reader = make_reader(
        manifest["preprocessing"], lambda file: (bundle / file).read_text(encoding="utf-8")
    )

    def infer(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        return run_session(session, inputs)

    return report(
        predict(arguments, reader, infer, manifest["class_names"]), arguments.format, show
    )


def run_command(command: Callable[[], int]) -> int:
    """Turns what a user can cause into one line on stderr and exit code 1."""
    try:
        return command()
    except BrokenPipeError:  # the reader of our output has stopped, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def main() -> int:
    """The command line of a bundle: the model is what lies beside this file."""
    arguments = predict_parser("Predicts classes for files with this bundle's model.").parse_args()
    bundle = Path(__file__).resolve().parent
    return run_command(lambda: predict_with_bundle(arguments, bundle, print_plain_table))


if __name__ == "__main__":
    sys.exit(main())
