"""What follows a fit that broke: the reason in plain words, and the failing step once more.

A value that is not finite leaves a file that repeats the steps in which it came about; `--replay`
goes on from it and names the first layer, operation and samples that show it.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.finite_differences import no_gradient_on_ranks, without_gradient
from callbacks.module_contract import ComputesLoss
from callbacks.replay import Replay, Reproduced
from cli.building import CallbackTable, build_callbacks, build_model
from cli.parsing import Configuration
from cli.ranks import is_rank_zero
from cli.run import Run
from cli.stop_signals import shortest
from cli.trainer import build_trainer
from lightning_modules.checkpoint import read_checkpoint

PROJECT = Path(__file__).resolve().parents[1]
RANK_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def explained(
    trainer: pl.Trainer, configuration: Configuration, table: CallbackTable, run: Run
) -> Iterator[None]:
    """Says of an error in the fit what only a look at the model, or another one at it, can say.

    Raises:
        ValueError: Parameters without a gradient, by name.
        SystemExit: On ranks that have nothing to say of a value that is not finite.
    """
    try:
        yield
    except RuntimeError as error:
        if "find_unused_parameters=True" in str(error):  # DDP's own, which names none
            silent = without_gradient(trainer.lightning_module)
            raise ValueError(no_gradient_on_ranks(silent)) from None
        steps: tuple[int, int] | None = getattr(error, "between_steps", None)
        if steps is None:
            raise
        run.signals.act_at_once(None)  # what follows is no training
        if not is_rank_zero():
            # any other code would make Lightning kill rank 0, which explains it
            raise SystemExit(0) from None
        if isinstance(trainer.lightning_module, ComputesLoss):  # else no step can be looked into
            repeat(steps, trainer, configuration, table, run)
        raise


def repeat(
    steps: tuple[int, int],
    trainer: Any,
    configuration: Configuration,
    table: CallbackTable,
    run: Run,
) -> None:
    """Leaves a file that repeats the failing step, and repeats it once to say where it fails."""
    if not (run.checkpoints and (last := run.checkpoints / "last.ckpt").is_file()):
        return
    path = last.with_name(f"replay-step-{steps[1]}.ckpt")
    replay = {"replay": dict(zip(("first_step", "last_step"), steps, strict=True))}
    AtomicCheckpointIO().save_checkpoint(read_checkpoint(last) | replay, path)
    words = ["--replay", shortest(path).as_posix(), *run.signals.extra_flags]
    print(f"not finite: repeat it with:\n  python train.py {shlex.join(words)}", flush=True)
    if trainer.world_size == 1:
        data = trainer.datamodule
        model, _ = build_model(configuration, data)
        run_replay(configuration | {"replay": str(path)}, model, data, table, run)
    elif trainer.num_nodes > 1 or trainer.strategy.launcher is None:
        print("not repeated at once: what started these ranks has to start them again")
    elif configuration["sync_batchnorm"]:  # ranks could wait for one that has found the value
        print("not repeated at once: with SyncBatchNorm it might hang")
    else:  # Lightning started the other ranks, and does so again for a process without a rank
        environment = {k: v for k, v in os.environ.items() if k not in RANK_VARIABLES}
        subprocess.run([sys.executable, PROJECT / "train.py", *words], env=environment, check=False)


def run_replay(
    configuration: Configuration, model: Any, data: Any, table: CallbackTable, run: Run
) -> int:
    """Goes on from the file of --replay until the value that is not finite is found again."""
    path = configuration["replay"]
    steps: Mapping[str, int] | None = read_checkpoint(path).get("replay")
    if steps is None:
        raise ValueError(f"--replay {path}: not a replay file (those are named replay-step-N.ckpt)")
    replay = Replay(**steps)
    mathematics = {key: table[key] for key in ("unfreeze", "ema") if key in table}
    chosen = build_callbacks(configuration, mathematics, run) | {"replay": replay}
    trainer = build_trainer(configuration | {"max_time": None}, chosen.values(), None)
    run.share_errors(trainer.world_size)
    try:
        trainer.fit(model, datamodule=data, ckpt_path=path)
    except Reproduced as found:
        run.say(f"reproduced: {found}")
        return 0
    trainer.print(f"not reproduced: steps {replay.first_step} to {replay.last_step} were finite")
    return 1 if is_rank_zero() else 0
