"""Predicts classes with a bundle (no torch needed) or a checkpoint of this project."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from exporters.runtime import (
    Predictor,
    parse_arguments,
    predict_parser,
    predict_with_bundle,
    report,
    run_command,
)
from preprocessing.reader import make_reader


def build_parser() -> argparse.ArgumentParser:
    parser = predict_parser(str(__doc__))
    parser.add_argument("--model", type=Path, required=True, help="bundle folder, or checkpoint")
    parser.add_argument(
        "--allow_external_code", action="store_true", help="allow classes outside this project"
    )
    return parser


def predict_with_checkpoint(arguments: argparse.Namespace) -> int:
    """Runs the checkpoint itself, in eager mode on the CPU; its temperature is not known yet."""
    import torch

    from exporters.evaluation import tensor_runner
    from lightning_modules.deployed import load_deployed, read_checkpoint

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
    return report(Predictor(reader, infer, description["class_names"], 1.0), arguments)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(build_parser(), argv)
    if arguments.model.is_dir():
        return run_command(lambda: predict_with_bundle(arguments, arguments.model), arguments.debug)
    return run_command(lambda: predict_with_checkpoint(arguments), arguments.debug)


if __name__ == "__main__":
    sys.exit(main())
