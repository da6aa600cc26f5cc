"""A checkpoint becomes a proven bundle: every format made, compared with the checkpoint, timed.

Works from the checkpoint alone, with the samples that the training run left beside it, or with
data given by --data.root. Exit codes: 0 done; 1 failed; 2 bad arguments; 3 a format that was asked
for by name did not pass, or none did.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from exporters import DEFAULT_FORMATS, EXPORTERS
from exporters.process import ChildError, run_child
from exporters.runtime import OneLineParser, run_command
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


def write_samples_from_data(checkpoint: Path, root: str, folder: Path) -> None:
    """Builds the datamodule of a checkpoint on data in `root` and writes its samples."""
    from callbacks.export import write_samples
    from datamodules import DATAMODULES
    from lightning_modules.deployed import read_checkpoint, resolve_class

    description = read_checkpoint(checkpoint)["description"]
    config = description["config"]
    settings = dict(config["data"])
    name = str(settings.pop("name"))
    datamodule: Any = resolve_class(DATAMODULES.get(name, name))(
        **settings | {"root": root, "seed": config["seed"]}
    )
    datamodule.prepare_data()
    datamodule.setup("fit")
    if datamodule.class_names != description["class_names"]:
        raise ValueError(f"--data.root {root} has other classes than the checkpoint")
    write_samples(datamodule, folder)


def formats(text: str) -> list[str]:
    """Names divided by commas, or the name of a group."""
    names = [name for part in text.split(",") for name in FORMAT_GROUPS.get(part, (part,))]
    unknown = [name for name in names if name not in EXPORTERS]
    if unknown or not names:
        valid = ", ".join([*EXPORTERS, *FORMAT_GROUPS])
        raise argparse.ArgumentTypeError(f"unknown format {', '.join(unknown)}; there are {valid}")
    return list(dict.fromkeys(names))


def build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="export.py", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--ckpt", type=Path, required=True, help="checkpoint of this project")
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
    add("--timeout", type=float, default=600.0, help="seconds for each step of each format")
    return parser


def export(arguments: argparse.Namespace) -> int:
    """Makes the bundle and prints its table."""
    from exporters.pipeline import Pipeline, Settings
    from exporters.report import print_report

    # absolute, since a format's child may work in a scratch folder
    checkpoint: Path = arguments.ckpt.absolute()
    if not checkpoint.is_file():
        raise FileNotFoundError(f"no checkpoint at {arguments.ckpt}")
    folder = checkpoint.resolve().parent
    run = folder.parent if folder.name == "checkpoints" else folder
    samples = (arguments.samples or run / "samples").absolute()
    if arguments.root is not None:
        sample_from_data(checkpoint, arguments.root, samples, arguments.timeout)
    settings = Settings(
        checkpoint,
        arguments.formats or list(DEFAULT_FORMATS),
        samples,
        (arguments.output or run / "export").absolute(),
        Limits(
            arguments.max_drop,
            arguments.max_drop_fp32,
            arguments.min_agreement,
            arguments.fail_if_slower,
        ),
        arguments.timeout,
    )
    load = partial(load_checkpoint, checkpoint, arguments.allow_external_code)
    console = Console(highlight=False)
    manifest = Pipeline(settings, load, console).run()
    print_report(manifest, console)
    console.print(f"Bundle: {shortest(settings.output)}", markup=False, soft_wrap=True)
    requested = arguments.formats or []
    if arguments.requested is not None:
        requested = [name for name in arguments.requested.split(",") if name]
    return exit_code(manifest["artifacts"], requested)


def shortest(path: Path) -> Path:
    """Relative where it lies below the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def sample_from_data(checkpoint: Path, root: str, samples: Path, timeout: float) -> None:
    """Calls `write_samples_from_data` in a child, since it needs Lightning.

    Raises:
        ValueError: The child's reason.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        try:
            arguments = checkpoint, root, samples
            run_child(write_samples_from_data, *arguments, timeout=timeout, log=log)
        except ChildError as error:
            raise ValueError(f"--data.root {root}: {error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        return run_command(lambda: export(arguments))
    except KeyboardInterrupt:
        print("error: interrupted; nothing was changed", file=sys.stderr)
        return 130


def leave(signal_number: int, frame: object) -> None:
    """Ends with the usual code, by way of an exception: what was half done is removed."""
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    sys.exit(main())
