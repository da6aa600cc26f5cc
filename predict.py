"""Predicts classes with a bundle (no torch needed) or a checkpoint of this project."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from exporters.bundle_files import MANIFEST, parse_manifest, sha256_of
from exporters.command_line import run_command
from exporters.runtime import (
    Predictor,
    parse_arguments,
    predict_parser,
    predict_with_bundle,
    report,
)
from preprocessing.reader import make_reader
from tasks.base import build_task


def build_parser() -> argparse.ArgumentParser:
    parser = predict_parser(str(__doc__))
    parser.add_argument("--model", type=Path, required=True, help="bundle folder, or checkpoint")
    parser.add_argument(
        "--allow_external_code", action="store_true", help="allow classes outside this project"
    )
    return parser


def find_temperature(checkpoint: Path) -> float | None:
    """What calibrates a checkpoint's probabilities, as the bundle of its run says.

    Returns:
        None where no bundle of this very file is found.
    """
    folder = checkpoint.resolve().parent
    run = folder.parent if folder.name == "checkpoints" else folder
    try:
        manifest = parse_manifest(run / "export" / MANIFEST)
    except (ValueError, OSError):
        return None
    if manifest["checkpoint"]["sha256"] != sha256_of(checkpoint):
        return None
    return float(manifest["calibration"]["temperature"])


def predict_with_checkpoint(arguments: argparse.Namespace) -> int:
    """Runs the checkpoint itself, in eager mode on the CPU, calibrated as its bundle is."""
    import torch

    from exporters.evaluation import tensor_runner
    from lightning_modules.checkpoint import read_checkpoint
    from lightning_modules.deployed import load_deployed

    if arguments.artifact is not None:
        raise ValueError("--artifact chooses inside a bundle; --model is a checkpoint")
    checkpoint = read_checkpoint(arguments.model)
    module = load_deployed(checkpoint, arguments.allow_external_code)
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    description = checkpoint["description"]
    files = description.get("files") or {}
    reader = make_reader(description["preprocessing"], files.__getitem__)
    names = [item["name"] for item in description["input_spec"]["inputs"]]
    infer = tensor_runner(module, names)
    temperature = find_temperature(arguments.model)
    predictor = Predictor(reader, infer, build_task(description), temperature or 1.0)
    code = report(predictor, arguments)
    if temperature is None:
        print(
            "note: probabilities are not calibrated: no bundle of this very checkpoint in export/ "
            "of its run (export.py makes it)",
            file=sys.stderr,
        )
    return code


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(build_parser(), argv)
    if arguments.model.is_dir():
        return run_command(lambda: predict_with_bundle(arguments, arguments.model), arguments.debug)
    return run_command(lambda: predict_with_checkpoint(arguments), arguments.debug)


if __name__ == "__main__":
    sys.exit(main())
