"""A checkpoint becomes a proven bundle: every format made, compared with the checkpoint, timed.

Works from the checkpoint alone, with the samples that the training run left beside it, or with
data given by --data.root. Exit codes: 0 done; 1 failed; 2 bad arguments; 3 a format that was asked
for by name did not pass, or none did.
"""

import argparse
import importlib.metadata
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from exporters import DEFAULT_FORMATS, EXPORTERS, OPSET, OPSETS
from exporters.process import ChildError, run_child
from exporters.runtime import OneLineParser, positive, run_command
from exporters.verdict import Limits, exit_code

FORMAT_GROUPS = {
    "default": DEFAULT_FORMATS,
    "all": tuple(EXPORTERS),
    "fp32": tuple(name for name in EXPORTERS if "int8" not in name),
    "int8": tuple(name for name in EXPORTERS if "int8" in name),
}


def load_checkpoint(path: Path, allow_external_code: bool) -> tuple[Any, dict[str, Any]]:
    """The deployed module, built afresh, and the checkpoint's description."""
    from lightning_modules.deployed import load_deployed, read_checkpoint

    checkpoint = read_checkpoint(path)
    return load_deployed(checkpoint, allow_external_code), checkpoint["description"]


def rebuild_datamodule(checkpoint: Path, root: str | None, allow_external_code: bool) -> Any:
    """The datamodule that a checkpoint was trained with, on data in `root` where one is given."""
    from datamodules import DATAMODULES
    from lightning_modules.deployed import read_checkpoint, resolve_class

    description = read_checkpoint(checkpoint)["description"]
    config = description["config"]
    # a child process may have no workers of its own
    settings = dict(config["data"]) | {"seed": config["seed"], "num_workers": 0}
    if root is not None:
        settings["root"] = root
    name = str(settings.pop("name"))
    datamodule: Any = resolve_class(DATAMODULES.get(name, name), allow_external_code)(**settings)
    datamodule.prepare_data()
    datamodule.setup("fit")
    if datamodule.class_names != description["class_names"]:
        raise ValueError(f"the data in {settings['root']} have other classes than the checkpoint")
    return datamodule


def write_samples_from_data(
    checkpoint: Path, root: str, allow_external_code: bool, folder: Path
) -> None:
    """Writes the samples of data in `root`."""
    from callbacks.export import write_samples

    write_samples(rebuild_datamodule(checkpoint, root, allow_external_code), folder)


def open_training_data(checkpoint: Path, root: str | None, allow_external_code: bool) -> Any:
    """The training split as QAT takes it: epoch -> batches of input tensors, augmented."""
    datamodule = rebuild_datamodule(checkpoint, root, allow_external_code)
    loader = datamodule.train_dataloader()

    def batches(epoch: int) -> Iterator[tuple[Any, ...]]:
        loader.batch_sampler.set_epoch(epoch)
        for batch in loader:
            inputs, _ = datamodule.on_after_batch_transfer(batch, 0)
            yield inputs if isinstance(inputs, tuple) else (inputs,)

    return batches


def formats(text: str) -> list[str]:
    """Names divided by commas, or the name of a group."""
    names = [name for part in text.split(",") for name in FORMAT_GROUPS.get(part, (part,))]
    unknown = [name for name in names if name not in EXPORTERS]
    if unknown or not names:
        valid = ", ".join([*EXPORTERS, *FORMAT_GROUPS])
        raise argparse.ArgumentTypeError(f"unknown format {', '.join(unknown)}; there are {valid}")
    return list(dict.fromkeys(names))


def opset(text: str) -> int:
    """An ONNX opset that can be written and run here."""
    low, high = OPSETS
    if text.isdecimal() and low <= int(text) <= high:
        return int(text)
    torch, runtime = (importlib.metadata.version(name) for name in ("torch", "onnxruntime"))
    raise argparse.ArgumentTypeError(
        f"expected {low} to {high}, which PyTorch's exporter {torch} and ONNX Runtime {runtime} "
        f"take, got {text}"
    )


def build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="export.py", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--ckpt", type=Path, help="checkpoint of this project")
    task.add_argument("--benchmark", type=Path, metavar="BUNDLE", help="only time its files here")
    task.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"),
        help="two bundles side by side")  # fmt: skip
    add("--trust", action="store_true",
        help="also run files of a bundle that can hold code (pt2, aoti)")  # fmt: skip
    add("--formats", type=formats, help=f"default: {','.join(DEFAULT_FORMATS)}")
    add("--requested", help="formats whose failure is exit code 3; default: those of --formats")
    add("--output", type=Path, help="the bundle; default: export/ in the run folder")
    add("--samples", type=Path, help="default: samples/ in the run folder")
    add("--data.root", dest="root", help="take the samples from data in this folder")
    add("--allow_external_code", action="store_true", help="allow classes outside this project")
    limits = Limits()
    add("--max_drop", type=float, default=limits.max_drop, help="points of accuracy INT8 may lose")
    add("--max_drop_fp32", type=float, default=limits.max_drop_fp32, help="likewise for FP32")
    add("--min_agreement", type=float, default=limits.min_agreement,
        help="percent of samples for which INT8 must give the checkpoint's class")  # fmt: skip
    add("--fail_if_slower", action="store_true", help="INT8 slower than FP32 is a failure")
    add("--opset", type=opset, default=OPSET, help="of the ONNX files")
    add("--qat", choices=("off", "auto", "on"), default="off",
        help="onnx-int8-qat: auto makes it where onnx-int8 fails")  # fmt: skip
    add("--qat_epochs", type=positive, default=3, help="epochs of fine-tuning for it")
    add("--timeout", type=float, default=600.0, help="seconds for each step of each format")
    add("--debug", action="store_true", help="show where in the code an error was raised")
    return parser


def export(arguments: argparse.Namespace) -> int:
    """Makes the bundle and prints its table."""
    from exporters.model_card import calibration_line
    from exporters.pipeline import QAT, Pipeline, Settings
    from exporters.report import print_report

    # absolute, since a format's child may work in a scratch folder
    checkpoint: Path = arguments.ckpt.absolute()
    if not checkpoint.is_file():
        raise FileNotFoundError(f"no checkpoint at {arguments.ckpt}")
    folder = checkpoint.resolve().parent
    run = folder.parent if folder.name == "checkpoints" else folder
    samples = (arguments.samples or run / "samples").absolute()
    if arguments.root is not None:
        sample_from_data(
            checkpoint, arguments.root, arguments.allow_external_code, samples, arguments.timeout
        )
    names = arguments.formats or list(DEFAULT_FORMATS)
    output = (arguments.output or run / "export").absolute()
    limits = Limits(**{field.name: getattr(arguments, field.name) for field in fields(Limits)})
    steps = arguments.timeout, arguments.qat, arguments.qat_epochs, arguments.opset
    settings = Settings(checkpoint, names, samples, output, limits, *steps)
    load = partial(load_checkpoint, checkpoint, arguments.allow_external_code)
    training = partial(
        open_training_data, checkpoint, arguments.root, arguments.allow_external_code
    )
    console = Console(highlight=False)
    pipeline = Pipeline(settings, load, training, console)
    manifest = pipeline.run()
    print_report(manifest, console)
    console.print(calibration_line(manifest["calibration"]), markup=False)
    console.print(f"Bundle: {shortest(pipeline.placed)}", markup=False, soft_wrap=True)
    if pipeline.placed != settings.output:
        console.print(f"The older bundle stays in {shortest(settings.output)}.", markup=False)
    requested = arguments.formats or []
    if arguments.requested is not None:
        requested = [name for name in arguments.requested.split(",") if name]
    if arguments.qat == "on":
        requested = [*requested, QAT]
    return exit_code(manifest["artifacts"], requested)


def look_at_bundles(arguments: argparse.Namespace) -> int:
    """Prints what finished bundles can do; changes nothing."""
    from exporters.bundle_report import print_benchmark, print_comparison

    console = Console(highlight=False)
    how = arguments.trust, arguments.timeout, console
    if arguments.benchmark is not None:
        print_benchmark(arguments.benchmark, *how)
    else:
        first, second = arguments.compare
        print_comparison(first, second, *how)
    return 0


def shortest(path: Path) -> Path:
    """Relative where it lies below the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def sample_from_data(
    checkpoint: Path, root: str, allow_external_code: bool, samples: Path, timeout: float
) -> None:
    """Calls `write_samples_from_data` in a child, since it needs Lightning.

    Raises:
        ValueError: The child's reason.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        try:
            arguments = checkpoint, root, allow_external_code, samples
            run_child(write_samples_from_data, *arguments, timeout=timeout, log=log)
        except ChildError as error:
            raise ValueError(f"--data.root {root}: {error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    command = look_at_bundles if arguments.ckpt is None else export
    try:
        return run_command(lambda: command(arguments), arguments.debug)
    except KeyboardInterrupt:
        print(
            "error: interrupted; the old bundle is as it was, and the same command goes on from "
            "what was proven",
            file=sys.stderr,
        )
        return 130


def leave(signal_number: int, frame: object) -> None:
    """Ends with the usual code, by way of an exception, so that children are ended too."""
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    sys.exit(main())
