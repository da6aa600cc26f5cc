"""A checkpoint becomes a proven bundle: every format made, compared with the checkpoint, timed.

Works from the checkpoint alone, with the samples that the training run left beside it, or with
data given by --data.root. Exit codes: 0 done; 1 failed; 2 bad arguments; 3 a format that was asked
for by name did not pass, or none did.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from exporters.bundle_place import SET_ASIDE
from exporters.command_line import run_command
from exporters.export_flags import export_parser, parse_arguments
from exporters.format_choice import QAT, choose
from exporters.process import ChildError, run_child
from exporters.verdict import NOT_PROVEN, Limits, exit_code
from preprocessing.inputs import values_of
from tasks.base import build_task

VALIDATION = "validation.npz"


class Output(Console):
    """Where the table goes; the work goes on when its reader has stopped, as `head` does."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def load_checkpoint(path: Path, allow_external_code: bool) -> tuple[Any, dict[str, Any]]:
    """The deployed module, built afresh, and the checkpoint's description."""
    from lightning_modules.checkpoint import read_checkpoint
    from lightning_modules.deployed import load_deployed

    checkpoint = read_checkpoint(path)
    return load_deployed(checkpoint, allow_external_code), checkpoint["description"]


def rebuild_datamodule(checkpoint: Path, root: str | None, allow_external_code: bool) -> Any:
    """The datamodule that a checkpoint was trained with, on data in `root` where one is given."""
    from cli.building import build_data
    from cli.resume import of_this_version
    from datamodules.contract import check_source, part
    from lightning_modules.checkpoint import read_checkpoint

    description = read_checkpoint(checkpoint)["description"]
    config = of_this_version(description["config"])
    settings = dict(config["data"])
    if "num_workers" in settings:  # a child process may have none of its own
        settings["num_workers"] = 0
        settings |= dict.fromkeys(settings.keys() & {"prefetch_factor", "persistent_workers"})
    if root is not None:
        settings["root"] = root
    configuration = {"data": settings, "allow_external_code": allow_external_code}
    datamodule = build_data(configuration | {"seed": config["seed"]})
    datamodule.prepare_data()
    datamodule.setup("fit")
    check_source(datamodule)
    if part(datamodule, "task") != build_task(description):
        raise ValueError(f"the data in {settings['root']} have other targets than the checkpoint")
    return datamodule


def write_samples_from_data(
    checkpoint: Path, root: str, allow_external_code: bool, folder: Path
) -> None:
    """Writes the samples of data in `root`, once they are known to fit the checkpoint.

    Raises:
        ValueError: They do not, or would take the place of samples of other data.
    """
    from callbacks.export import write_samples
    from exporters.evaluation import write_reference
    from lightning_modules.checkpoint import read_checkpoint

    datamodule = rebuild_datamodule(checkpoint, root, allow_external_code)
    trained_on = read_checkpoint(checkpoint)["description"].get("fingerprint")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".samples-") as scratch:
        new = Path(scratch)
        write_samples(datamodule, new)
        is_same = datamodule.fingerprint == trained_on or same_samples(new, folder)
        if (folder / VALIDATION).is_file() and not is_same:
            raise ValueError(
                f"not the data that the checkpoint was trained on, so the samples in {folder} "
                "stay; to prove the export on these data, name another folder by --samples"
            )
        load = partial(load_checkpoint, checkpoint, allow_external_code)
        write_reference(load, new, new / "evaluation.npz")
        folder.mkdir(exist_ok=True)
        for path in new.iterdir():
            path.replace(folder / path.name)


def same_samples(new: Path, folder: Path) -> bool:
    """Whether a folder holds the same validation samples, as when the data were moved."""
    import numpy as np

    from exporters.candidate import read_samples

    a, b = read_samples(new / VALIDATION), read_samples(folder / VALIDATION)
    if a is None or b is None or a.keys() != b.keys():
        return False
    return all(np.array_equal(a[name], b[name]) for name in a)


def open_training_data(checkpoint: Path, root: str | None, allow_external_code: bool) -> Any:
    """The training split as QAT takes it: epoch -> batches of input tensors, augmented."""
    datamodule = rebuild_datamodule(checkpoint, root, allow_external_code)
    loader = datamodule.train_dataloader()

    def batches(epoch: int) -> Iterator[tuple[Any, ...]]:
        loader.batch_sampler.set_epoch(epoch)
        for batch in loader:
            inputs, _ = datamodule.on_after_batch_transfer(batch, 0)
            yield tuple(values_of(inputs))

    return batches


def translations_for(
    path: str | None, allow_external_code: bool, operators: Collection[str]
) -> Mapping[Any, Any]:
    """How operators become ONNX's that its exporter does not know."""
    from cli.translations import onnx_translations

    return onnx_translations(path, allow_external_code, operators)


def build_parser() -> argparse.ArgumentParser:
    return export_parser(str(__doc__))


def export(arguments: argparse.Namespace) -> int:
    """Makes the bundle and prints its table."""
    from exporters.model_card import calibration_line
    from exporters.pipeline import Pipeline, Settings
    from exporters.report import print_report

    # absolute, since a format's child may work in a scratch folder
    checkpoint: Path = arguments.ckpt.absolute()
    if not checkpoint.is_file():
        raise FileNotFoundError(f"no checkpoint at {arguments.ckpt}")
    folder = checkpoint.resolve().parent
    run = folder.parent if folder.name == "checkpoints" else folder
    console = Output(highlight=False)
    names = (arguments.formats or choose("default")).names
    samples = find_samples(arguments, checkpoint, run, console)
    output = (arguments.output or run / "export").absolute()
    if output.is_symlink():  # the link stays, what it leads to is replaced
        output = output.resolve()
    limits = Limits(**{field.name: getattr(arguments, field.name) for field in fields(Limits)})
    steps = arguments.timeout, arguments.qat, arguments.qat_epochs, arguments.opset
    how = arguments.overwrite, not arguments.skip_timing
    settings = Settings(checkpoint, names, samples, output, limits, *steps, *how)
    load = partial(load_checkpoint, checkpoint, arguments.allow_external_code)
    training = partial(
        open_training_data, checkpoint, arguments.root, arguments.allow_external_code
    )
    translations = partial(
        translations_for, arguments.onnx_translations, arguments.allow_external_code
    )
    pipeline = Pipeline(settings, load, training, console, translations)
    manifest = pipeline.run()
    print_report(manifest, console)
    console.print(calibration_line(manifest["calibration"]), markup=False)
    console.print(f"Bundle: {shortest(pipeline.placed)}", markup=False, soft_wrap=True)
    if pipeline.placed != settings.output:
        console.print(
            f"The older bundle stays in {shortest(settings.output)}: {manifest[SET_ASIDE]} "
            "(--overwrite replaces it).", markup=False, soft_wrap=True,
        )  # fmt: skip
        return NOT_PROVEN
    wanted = arguments.requested
    if wanted is None:
        wanted = arguments.formats.requested(manifest["artifacts"]) if arguments.formats else []
    return exit_code(manifest["artifacts"], wanted + [QAT] * (arguments.qat == "on"))


def find_samples(
    arguments: argparse.Namespace, checkpoint: Path, run: Path, console: Console
) -> Path:
    """The folder of the samples, made from data where --data.root is given.

    Raises:
        ValueError: There are none where --samples says.
    """
    samples = (arguments.samples or run / "samples").absolute()
    if arguments.root is not None:
        sample_from_data(
            checkpoint, arguments.root, arguments.allow_external_code, samples, arguments.timeout
        )
    if arguments.samples is not None and not any(samples.glob("*.npz")):
        what = f"has no {VALIDATION}" if samples.is_dir() else "is no folder"
        raise ValueError(f"--samples {arguments.samples} {what}; a run writes it as samples/")
    if not (samples / VALIDATION).is_file():
        console.print(f"no {VALIDATION} in {shortest(samples)}: nothing can be proven",
                      markup=False, soft_wrap=True)  # fmt: skip
    return samples


def look_at_bundles(arguments: argparse.Namespace) -> int:
    """Prints what finished bundles can do; changes nothing."""
    from exporters.bundle_report import print_benchmark, print_comparison

    console = Output(highlight=False)
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
    arguments = parse_arguments(build_parser(), argv)
    command = look_at_bundles if arguments.ckpt is None else export
    interrupted = (
        "interrupted; the old bundle is as it was, and the same command goes on from what was "
        "proven"
    )
    return run_command(lambda: command(arguments), arguments.debug, interrupted)


def leave(signal_number: int, frame: object) -> None:
    """Ends with the usual code, by way of an exception, so that children are ended too."""
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    sys.exit(main())
