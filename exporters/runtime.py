"""The torch-free predictor: a bundle's model, run by ONNX Runtime, answers printed.

A copy of this file is `predict.py` in every bundle. It imports numpy, onnxruntime, the parts that
are copied with it (which need Pillow or tokenizers) and nothing else. Samples are read, run and
printed batch by batch, so memory stays flat however many there are.

N batch, K outputs.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.dont_write_bytecode = True  # a bundle stays as it was shipped
# read when ONNX Runtime is imported: else it keeps a device id in the home, and sends events
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from exporters.answers import FORMS, Prediction  # noqa: E402
from exporters.bundle_files import (  # noqa: E402
    choose_artifact,
    read_manifest,
    unexpected_files,
)
from exporters.command_line import OneLineParser, positive, run_command, share  # noqa: E402
from preprocessing.reader import Reader, make_reader  # noqa: E402
from preprocessing.sources import STANDARD_INPUT, Sample, find_samples  # noqa: E402
from preprocessing.table_flags import (  # noqa: E402
    add_table_flags,
    table_flag_problem,
    table_flags,
)
from tasks.base import Task, build_task  # noqa: E402

NOTES = {
    "empty": "texts without a token: {} (each counts as one unknown token)",
    "truncated": "texts longer than the model takes: {} (their ends were cut)",
    "outside": "pictures with values outside of what training saw: {} (they were clipped)",
    "deep": "pictures of more than 8 bits, while training saw none: {} (0 to 65,535 became 0 to "
    "255)",
    "upper_bits": "pictures of 16 bits a colour: {} (the upper 8 were read)",
}

Infer = Callable[[Mapping[str, np.ndarray]], np.ndarray]


# ---- models ----------------------------------------------------------------------------


def open_session(path: Path, threads: int | None) -> Any:
    """An ONNX Runtime session on the CPU; `threads` None leaves the number to it.

    Raises:
        ValueError: ONNX Runtime refuses the file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised, that is enough
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own types, one for each kind of fault
        raise ValueError(f"ONNX Runtime cannot load {path}: {error}") from error


def run_session(session: Any, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Arrays by name -> logits float32 [N,K]."""
    return session.run(None, dict(inputs))[0]


def session_infer(session: Any) -> Infer:
    """`run_session` as a function of the inputs; what it cannot run is one message."""

    def infer(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        try:
            return run_session(session, inputs)
        except Exception as error:  # as above
            raise ValueError(f"the model does not run on these inputs: {error}") from error

    return infer


# ---- predictions -----------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A sample that has no answer."""

    message: str


# samples, what was read of each, and what cannot be
Batch = tuple[list[Sample], list[Any], list[Fault]]


@dataclass(frozen=True)
class Predictor:
    """A model with what turns samples into its inputs and logits into answers."""

    reader: Reader
    infer: Infer
    task: Task
    temperature: float  # makes probabilities mean what they say

    def predict(self, arguments: argparse.Namespace) -> Iterator[Prediction | Fault]:
        """Answers in the order of the samples; faults before the answers of their batch."""
        if arguments.text and not self.reader.takes_text:
            raise ValueError("--text: this model takes files, not texts")
        if self.reader.columns and not arguments.column:
            raise ValueError(
                f"this model takes a place in a picture: give a table with the columns path, "
                f"{', '.join(self.reader.columns)}, and --column path"
            )
        for samples, items, faults in self.batches(arguments):
            yield from faults
            if items:
                yield from self.answer(samples, self.reader.collate(items), arguments)

    def batches(self, arguments: argparse.Namespace) -> Iterator[Batch]:
        """What can be read, and a fault for what cannot."""
        reader = self.reader
        table = replace(table_flags(arguments), values=reader.columns)
        samples = find_samples(
            arguments.text, arguments.files, table, reader.takes_text, reader.extensions, say
        )
        read, items, faults = batch = [], [], []  # type: Batch
        for sample in samples:
            name, content, _, values = sample
            try:
                if isinstance(content, ValueError):
                    raise content
                items.append(reader.read(content, *values))
                read.append(sample)
            except (ValueError, OSError, MemoryError) as error:
                message = str(error) or type(error).__name__
                if not values:
                    message = message.removeprefix(f"{content}: ")
                faults.append(Fault(message if name in message else f"{name}: {message}"))
            if len(items) + len(faults) == arguments.batch_size:
                yield batch
                read, items, faults = batch = [], [], []
        yield batch

    def answer(
        self, samples: list[Sample], inputs: Mapping[str, np.ndarray], arguments: argparse.Namespace
    ) -> Iterator[Prediction | Fault]:
        """Runs one batch."""
        outputs = self.infer(inputs)
        expected = len(samples), self.task.num_outputs
        if outputs.shape != expected:
            raise ValueError(f"the model returns {list(outputs.shape)}, expected {list(expected)}")
        finite = np.asarray(np.isfinite(outputs).all(axis=1))
        answers = self.task.answers(
            np.where(finite[:, None], outputs, 0),
            self.temperature,
            arguments.top_k,
            arguments.threshold,
        )
        for (name, _, kept, _), found, is_finite in zip(samples, answers, finite, strict=True):
            if is_finite:
                yield Prediction(name, found, kept)
            else:
                yield Fault(f"{name}: the model's output is not finite")

    def notes(self) -> list[str]:
        """What was odd about samples that were answered."""
        counts = self.reader.counts
        return [text.format(counts[key]) for key, text in NOTES.items() if counts[key]]


def say(note: str) -> None:
    """What is no fault of a sample."""
    print(f"note: {note}", file=sys.stderr)


def report(predictor: Predictor, arguments: argparse.Namespace) -> int:
    """Prints answers on stdout, faults and notes on stderr; 1 where a sample has no answer."""
    faults = 0
    arguments.top_k = min(arguments.top_k, predictor.task.num_outputs)  # there are no more

    def answered() -> Iterator[Prediction]:
        nonlocal faults
        for item in predictor.predict(arguments):
            if isinstance(item, Prediction):
                yield item
            else:
                faults += 1
                print(f"error: {item.message}", file=sys.stderr)

    FORMS[arguments.format](answered(), predictor.task.decision, arguments)
    for note in predictor.notes():
        say(note)
    return 1 if faults else 0


# ---- command line ----------------------------------------------------------------------


def predict_parser(description: str) -> argparse.ArgumentParser:
    """The flags that the bundle's predict.py and the project's share."""
    parser = OneLineParser(prog="predict.py", description=description, allow_abbrev=False)
    add = parser.add_argument
    add("files", nargs="*",
        help=f"files, folders of files, or {STANDARD_INPUT} for the lines of standard input "
        "(texts; for a model of pictures, their paths)")  # fmt: skip
    add("--text", action="append", default=[], help="a text itself; may be repeated")
    add_table_flags(parser)
    add("--artifact", help="which model of the bundle; default: the recommended")
    add("--format", choices=tuple(FORMS), default="table")
    add("--top_k", type=positive, default=1, help="classes a sample")
    add("--threshold", type=share, default=0.0, help="leave out classes less probable than this")
    add("--threads", type=positive, help="CPU threads; default: all")
    add("--batch_size", type=positive, default=32)
    add("--debug", action="store_true", help="show where in the code an error was raised")
    return parser


def parse_arguments(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> Any:
    """The flags; something to predict for must be among them."""
    arguments = parser.parse_args(argv)
    if not arguments.files and not arguments.text:
        parser.error(f"nothing to predict for: give files, folders, --text or {STANDARD_INPUT}")
    if problem := table_flag_problem(arguments):
        parser.error(problem)
    cpus = os.cpu_count() or 1
    if arguments.threads is not None and arguments.threads > cpus:  # each costs time to start
        print(f"note: --threads {arguments.threads}: taking {cpus}, as many as there are CPUs",
              file=sys.stderr)  # fmt: skip
        arguments.threads = cpus
    return arguments


def predict_with_bundle(arguments: argparse.Namespace, bundle: Path) -> int:
    """Checks the bundle, then predicts for all samples."""
    manifest = read_manifest(bundle)
    if extra := unexpected_files(bundle, manifest["files"]):
        print(f"note: not part of the bundle: {', '.join(extra[:5])}", file=sys.stderr)
    name = choose_artifact(manifest, arguments.artifact)
    entry = manifest["artifacts"][name]
    if entry["verdict"] != "passed":
        print(f"note: {name} is {entry['verdict']}: {'; '.join(entry['reasons'])}", file=sys.stderr)
    reader = make_reader(
        manifest["preprocessing"], lambda file: (bundle / file).read_text(encoding="utf-8")
    )
    session = open_session(bundle / entry["file"], arguments.threads)
    temperature = manifest["calibration"]["temperature"]
    predictor = Predictor(reader, session_infer(session), build_task(manifest), temperature)
    return report(predictor, arguments)


def main() -> int:
    """The command line of a bundle: the model is what lies beside this file."""
    parser = predict_parser("Predicts classes with this bundle's model.")
    arguments = parse_arguments(parser, None)
    bundle = Path(__file__).resolve().parent
    return run_command(lambda: predict_with_bundle(arguments, bundle), arguments.debug)


if __name__ == "__main__":
    sys.exit(main())
