"""A bundle's predictor against ONNX Runtime itself: `python -m benchmarks.predict BUNDLE ...`

Two figures a bundle, on one thread, batches of 32, in turns, medians: from ready arrays (what the
predictor adds to the runtime's call), and from files (against the plainest loop that reads the same
files, runs them and takes the largest logit). And the seconds from the start of a fresh process to
its first answer, beside those of a process that only imports numpy and ONNX Runtime. Pictures and
texts are made up: photographs of 500 x 375 as JPEG, texts of 20 to 400 words as files.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from exporters.bundle_files import choose_artifact, read_manifest
from exporters.runtime import (
    Predictor,
    open_session,
    parse_arguments,
    predict_parser,
    run_session,
    session_infer,
)
from preprocessing.reader import Reader, make_reader
from preprocessing.sources import Sample
from tasks.base import Task, build_task

ROUNDS = 7
NUM_FILES = 512
BATCH = 32
PICTURE = (375, 500)  # H, W
WORDS = [
    "the",
    "film",
    "was",
    "a",
    "quiet",
    "story",
    "about",
    "two",
    "people",
    "who",
    "never",
    "said",
]


def write_files(preprocessing: Mapping[str, Any], folder: Path) -> list[Path]:
    """Files of about the size that people have."""
    generator = np.random.default_rng(0)
    paths = []
    for i in range(NUM_FILES):
        if preprocessing["kind"] == "image":
            small = generator.integers(0, 256, (PICTURE[0] // 12, PICTURE[1] // 12, 3), np.uint8)
            paths.append(folder / f"{i:04}.jpg")
            Image.fromarray(small).resize(PICTURE[::-1], Image.Resampling.BICUBIC).save(paths[-1])
        else:
            words = generator.choice(WORDS, generator.integers(20, 400))
            paths.append(folder / f"{i:04}.txt")
            paths[-1].write_text(" ".join(words), encoding="utf-8")
    return paths


def seconds_in_turn(jobs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Medians; the first round only warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(ROUNDS + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def throughput(reader: Reader, session: Any, task: Task, paths: list[Path]) -> dict:
    """Samples a second of the raw loops and of ours."""
    chunks = [paths[i : i + BATCH] for i in range(0, len(paths), BATCH)]
    inputs = [reader.collate([reader.read(path) for path in chunk]) for chunk in chunks]
    predictor = Predictor(reader, session_infer(session), task, 1.5)
    flags = ["--batch_size", str(BATCH), *map(str, paths)]
    arguments = parse_arguments(predict_parser(""), flags)

    def read_and_run() -> None:
        for chunk in chunks:
            batch = reader.collate([reader.read(path) for path in chunk])
            run_session(session, batch).argmax(axis=1)

    def answer_all() -> None:
        for chunk, batch in zip(chunks, inputs, strict=True):
            samples = [Sample(str(path), path) for path in chunk]
            list(predictor.answer(samples, batch, arguments))

    seconds = seconds_in_turn(
        {
            "arrays, ONNX Runtime": lambda: [run_session(session, batch) for batch in inputs],
            "arrays, predictor": answer_all,
            "files, plain loop": read_and_run,
            "files, predictor": lambda: list(predictor.predict(arguments)),
        }
    )
    return {name: len(paths) / value for name, value in seconds.items()}


def start_seconds(bundle: Path, path: Path) -> dict[str, float]:
    """From the start of a process to its end after one answer."""
    imports = [sys.executable, "-c", "import numpy, onnxruntime"]
    command = [sys.executable, str(bundle / "predict.py"), "--threads", "1", str(path)]

    def run(words: list[str]) -> None:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    return seconds_in_turn(
        {"imports only": lambda: run(imports), "first answer": lambda: run(command)}
    )


def measure(bundle: Path) -> dict[str, float]:
    manifest = read_manifest(bundle)
    entry = manifest["artifacts"][choose_artifact(manifest, None)]
    reader = make_reader(manifest["preprocessing"], lambda name: (bundle / name).read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(manifest["preprocessing"], Path(folder))
        session = open_session(bundle / entry["file"], 1)
        figures = throughput(reader, session, build_task(manifest), paths)
        return figures | start_seconds(bundle, paths[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", nargs="+", type=Path)
    results = {}
    for bundle in parser.parse_args().bundles:
        figures = results[str(bundle)] = measure(bundle)
        print(f"\n{bundle}")
        for name in ("arrays, ONNX Runtime", "arrays, predictor", "files, plain loop",
                     "files, predictor"):  # fmt: skip
            print(f"  {name:24} {figures[name]:10,.0f} samples/s")
        for what, raw in (("arrays", "arrays, ONNX Runtime"), ("files", "files, plain loop")):
            share = figures[f"{what}, predictor"] / figures[raw]
            print(f"  share of raw, {what:10} {share:10.2f}")
        for name in ("imports only", "first answer"):
            print(f"  {name:24} {figures[name]:10.2f} s")
    path = Path("build") / "benchmarks" / "predict.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main()
