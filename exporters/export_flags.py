"""The flags of export.py, and what their values may be."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from exporters import DEFAULT_FORMATS, OPSET, OPSETS
from exporters.command_line import OneLineParser, positive
from exporters.format_choice import QAT, Choice, check_speed_limit, choose
from exporters.machine import library_version
from exporters.verdict import Limits

MAX_TIMEOUT = 1e6  # seconds; the most that a system waits for lies above


def formats(text: str) -> Choice:
    """`choose` as argparse takes it."""
    try:
        return choose(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def requested(text: str) -> list[str]:
    """Names divided by commas; none is possible."""
    return formats(text).names if text.strip() else []


def number(low: float, high: float, text: str) -> float:
    """A number from low to high; NaN is none."""
    try:
        if low <= float(text) <= high:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected a number from {low:g} to {high:g}, got {text!r}")


def opset(text: str) -> int:
    """An ONNX opset that can be written and run here."""
    low, high = OPSETS
    if text.isdecimal() and low <= int(text) <= high:
        return int(text)
    torch, runtime = map(library_version, ("torch", "onnxruntime"))
    raise argparse.ArgumentTypeError(
        f"expected {low} to {high}, which PyTorch's exporter {torch} and ONNX Runtime {runtime} "
        f"take, got {text}"
    )


def parse_arguments(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None
) -> argparse.Namespace:
    """The arguments, each for itself and all together right; else the process ends with 2."""
    found = parser.parse_args(argv)
    names = (found.formats or choose("default")).names
    try:
        check_speed_limit(names, found.fail_if_slower)
    except ValueError as error:
        parser.error(str(error))
    if found.fail_if_slower and found.skip_timing:
        parser.error("--fail_if_slower needs the timing that --skip_timing leaves out")
    if unmade := set(found.requested or []) - {*names, QAT}:
        parser.error(f"--requested {','.join(sorted(unmade))}: not one of --formats")
    return found


def export_parser(description: str) -> argparse.ArgumentParser:
    parser = OneLineParser(prog="export.py", description=description, allow_abbrev=False)
    add = parser.add_argument
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--ckpt", type=Path, help="checkpoint of this project")
    task.add_argument("--benchmark", type=Path, metavar="BUNDLE", help="only time its files here")
    task.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"),
        help="two bundles side by side")  # fmt: skip
    add("--trust", action="store_true",
        help="also run files of a bundle that can hold code (pt2, aoti, and what needs a library "
        "of operators)")  # fmt: skip
    add("--formats", type=formats, help=f"default: {','.join(DEFAULT_FORMATS)}")
    add("--requested", type=requested,
        help="formats whose failure is exit code 3; default: those of --formats, of a group those "
        "that can be made here")  # fmt: skip
    add("--output", type=Path, help="the bundle; default: export/ in the run folder")
    add("--overwrite", action="store_true", help="also replace a bundle that proves more")
    add("--samples", type=Path, help="default: samples/ in the run folder")
    add("--data.root", dest="root", help="take the samples from data in this folder")
    add("--allow_external_code", action="store_true", help="allow classes outside this project")
    limits = Limits()
    percent = partial(number, 0, 100)
    add("--max_drop", type=percent, default=limits.max_drop,
        help="points of the main score INT8 may lose")  # fmt: skip
    add("--max_drop_fp32", type=percent, default=limits.max_drop_fp32, help="likewise for FP32")
    add("--min_agreement", type=percent, default=limits.min_agreement,
        help="percent of samples for which INT8 must give the checkpoint's class")  # fmt: skip
    add("--fail_if_slower", action="store_true", help="INT8 slower than FP32 is a failure")
    add("--skip_timing", action="store_true",
        help="sooner done: no latency and memory, nothing recommended for its speed")  # fmt: skip
    add("--opset", type=opset, default=OPSET, help="of the ONNX files")
    add("--onnx_translations", metavar="PATH",
        help="import path of a table {torch operator: function of onnxscript} for operators that "
        "the exporter to ONNX does not know")  # fmt: skip
    add("--qat", choices=("off", "auto", "on"), default="off",
        help="onnx-int8-qat: auto makes it where onnx-int8 fails")  # fmt: skip
    add("--qat_epochs", type=positive, default=3, help="epochs of fine-tuning for it")
    add("--timeout", type=partial(number, 1, MAX_TIMEOUT), default=600.0,
        help="seconds for each step of each format")  # fmt: skip
    add("--debug", action="store_true", help="show where in the code an error was raised")
    return parser
