"""Trains a classifier, tests it, and leaves a proven export: `python train.py` needs no flag.

The only file that joins all parts. It reads from top to bottom in the order in which things
happen: callbacks, configuration, data, model, trainer, fit, test, export.
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed before CUDA for determinism
# waiting CPU threads sleep instead of spinning: on a shared machine that is several times faster
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytorch_lightning as pl

from callbacks.checkpointing import Checkpointing
from callbacks.described import Described
from callbacks.early_stopping import EarlyStopping
from callbacks.ema import EMA
from callbacks.export import Export
from callbacks.gradient_check import GradientCheck
from callbacks.learning_curves import LearningCurves
from callbacks.lr_finder import LRFinder
from callbacks.non_finite import NonFinite
from callbacks.test_report import TestReport
from callbacks.unfreeze import Unfreeze
from callbacks.wandb_report import WandbReport
from cli.adaptations import adapt
from cli.building import CallbackTable, build_callbacks, build_data, build_model
from cli.checks import set_matmul_precision
from cli.configuration import configure
from cli.known_warnings import hide_known_warnings
from cli.own_module import untested_line
from cli.parsing import Configuration
from cli.problems import bad_arguments
from cli.provenance import start_line, tested_line
from cli.replay_run import explained, run_replay
from cli.resume import check_same_model, check_same_training
from cli.run import Run
from cli.trainer import build_trainer
from cli.translations import check_export
from datamodules.contract import check_source
from datamodules.data_check import check_data
from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.first_batch import check_first_batch

# Callbacks with flags of their own (--NAME.ARGUMENT), in the order in which they run; those without
# stand in cli/trainer.py. What no flag can say is handed over here. To remove one, delete its file,
# its test and its lines here.
CALLBACKS: CallbackTable = {
    "non_finite": NonFinite,  # before a checkpoint could keep the fault
    "checkpoint": Checkpointing,  # before averaged weights take over
    "unfreeze": Unfreeze,  # before the rate finder, which then sees it frozen
    "lr_finder": LRFinder,  # before anything has been trained
    "early_stopping": EarlyStopping,  # after what chooses and keeps the best
    "gradient_check": GradientCheck,
    "ema": EMA,  # after whatever looks at the weights that are trained
    "test_report": TestReport,  # it and those below only look back, and have no order
    "learning_curves": LearningCurves,
    "wandb": WandbReport,
    "export": partial(Export, check=check_export, script=Path(__file__).with_name("export.py")),
}


def train(configuration: Configuration, run: Run) -> int:
    """From the data to a proven export; returns the exit code."""
    pl.seed_everything(configuration["seed"], workers=True, verbose=False)
    data = build_data(configuration)
    data.prepare_data()
    data.setup("fit")
    check_source(data)

    model, description = build_model(configuration, data)
    if configuration["replay"]:
        return run_replay(configuration, model, data, CALLBACKS, run)
    if path := configuration["test_only"]:
        checkpoint = read_checkpoint(path)
        check_same_model(path, checkpoint, model, description, False)
        model.load_state_dict(checkpoint["state_dict"])
        return test_only(configuration, model, data, run)
    if path := configuration["resume"]:
        checkpoint, may_change = read_checkpoint(path), configuration["allow_changes"]
        check_same_model(path, checkpoint, model, description, may_change)
        check_same_training(path, checkpoint, description, data, may_change)

    run.open_folder(configuration)
    if run.is_rank_zero:
        check_data(data, configuration["check_data"], run.folder)
    callbacks = build_callbacks(configuration, CALLBACKS, run)
    chosen = [Described(description), *callbacks.values()]
    trainer = build_trainer(configuration, chosen, run.folder, data)
    run.say(start_line(configuration, model, trainer), run.folder_line, untested_line(model))
    check_first_batch(model, data.example_batch(), trainer.strategy)
    run.share_errors(trainer.world_size)

    with explained(trainer, configuration, CALLBACKS, run):
        trainer.fit(model, datamodule=data, ckpt_path=configuration["resume"])
    return test_and_export(trainer, model, data, callbacks, run)


def test_and_export(
    trainer: pl.Trainer, model: Any, data: Any, callbacks: dict[str, Any], run: Run
) -> int:
    """The best checkpoint is exported by another process while it is tested in this one."""
    checkpoint, export, wandb = map(callbacks.get, ("checkpoint", "export", "wandb"))
    best, monitor = (checkpoint.best_path, checkpoint.monitor) if checkpoint else (None, None)
    if export:
        export.start(trainer, data, best)
    is_tested = trainer.limit_test_batches != 0 and not untested_line(model)
    if run.folder and run.is_rank_zero:
        run.say(tested_line(best, monitor, export and export.process, is_tested))
    if is_tested:
        trainer.test(model, datamodule=data, ckpt_path=best, verbose=False)
    if not (run.folder and run.is_rank_zero):
        return 0
    code = export.wait() if export else 0  # last, when no rank can wait for this one
    if wandb:
        wandb.upload(run.folder / "export")
        wandb.finish()
    run.say(run.folder_line)
    return code


def test_only(configuration: Configuration, model: Any, data: Any, run: Run) -> int:
    """The test report of a checkpoint, on the data it was made for."""
    report = {key: CALLBACKS[key] for key in ("test_report",) if key in CALLBACKS}
    settings = configuration | {"logger": "csv", "callbacks": []}
    trainer = build_trainer(settings, build_callbacks(settings, report, run).values(), None)
    run.share_errors(trainer.world_size)
    trainer.test(model, datamodule=data, verbose=False)
    return 0


def main(argv: Sequence[str]) -> int:
    """The process, from a command line to an exit code."""
    hide_known_warnings()
    with Run(argv) as run:  # an error in it becomes one message, and the exit code
        with bad_arguments(OSError):
            configuration = configure(argv, CALLBACKS)
            run.say(*adapt(configuration), set_matmul_precision(configuration))
        run.exit_code = train(configuration, run)
    return run.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
