"""Predicts classes for files with a bundle (no torch needed) or a checkpoint of this project."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from exporters.runtime import (
    Show,
    predict,
    predict_parser,
    predict_with_bundle,
    print_plain_table,
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


def table_printer() -> Show:
    """A rich table on a terminal, plain columns elsewhere."""
    if not sys.stdout.isatty():
        return print_plain_table
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return print_plain_table

    def show(header: list[str], rows: list[list[str]]) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in header:
            table.add_column(name, justify="right" if name == "probability" else "left")
        for row in rows:
            table.add_row(*row)
        Console(highlight=False, markup=False).print(table)

    return show


def predict_with_checkpoint(arguments: argparse.Namespace, show: Show) -> int:
    """Runs the checkpoint itself, in eager mode on the CPU."""
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
    found = predict(arguments, reader, tensor_runner(module, names), description["class_names"])
    return report(found, arguments.format, show)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    show = table_printer()
    if arguments.model.is_dir():
        return run_command(lambda: predict_with_bundle(arguments, arguments.model, show))
    return run_command(lambda: predict_with_checkpoint(arguments, show))


if __name__ == "__main__":
    sys.exit(main())
