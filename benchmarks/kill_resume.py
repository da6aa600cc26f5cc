"""Kills runs at random moments, resumes them, and compares the end with an undisturbed run.

`python -m benchmarks.kill_resume --kills 50` starts real runs of train.py in processes of their
own and ends them with SIGKILL, half of them while a checkpoint is being written. A run that
finishes before all kills are spent is compared and followed by another. Printed: kills, resumes,
the most optimizer steps lost by a kill (at most the checkpoint interval), and whether the final
checkpoints and metrics.csv are identical to the last bit. The project is imported once; each
process is a fork of that, made before anything has been computed.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.train_process import run_train
from cli.newest_checkpoint import checkpoints_in
from lightning_modules.checkpoint import read_checkpoint

INTERVAL = 10
COMMON = [
    *("--checkpoint_every", str(INTERVAL), "--max_epochs", "4", "--export.enabled", "false"),
    *("--lr_finder.enabled", "false", "--enable_progress_bar", "false"),
    *("--ema.enabled", "true", "--ema.decay", "0.95", "--val_check_interval", "0.5"),
    *("--accumulate_grad_batches", "2", "--deterministic", "true"),
]
JOBS = {
    "image": ["--data.crop_padding", "1", "--data.batch_size", "32"],
    "text": ["--config", "configs/bbc_news.yaml", "--data.batch_size", "32"],
}
COMPARED = (
    *("state_dict", "current_model_state", "averaging_state", "optimizer_states"),
    *("lr_schedulers", "exact_resume", "callbacks", "global_step"),
)


@dataclass
class Tally:
    """What happened so far."""

    kills: int = 0
    while_writing: int = 0
    resumes: int = 0
    finished: int = 0
    most_lost: int = 0
    identical: bool = True


def child(arguments: list[str], log: Path, step: Any) -> None:
    """One process of train.py; writes the optimizer steps done to shared memory."""
    os.setsid()

    def note(module: Any) -> None:
        step.value = module.trainer.global_step

    os._exit(run_train(arguments, log, note))


class Runner:
    """Starts processes of one job in one folder."""

    def __init__(self, job: list[str], runs: Path) -> None:
        self.arguments = [*job, *COMMON, "--runs_dir", str(runs), "--experiment", "a"]
        self.runs = runs
        self.log = runs.with_suffix(".log")
        self.context = multiprocessing.get_context("fork")
        self.step = self.context.RawValue("q", 0)

    def start(self, resume: bool) -> Any:
        arguments = self.arguments + (["--resume", "auto"] if resume else [])
        process = self.context.Process(target=child, args=(arguments, self.log, self.step))
        self.step.value = 0
        process.start()
        return process

    def run(self) -> float:
        """An undisturbed run; returns its seconds."""
        start = time.perf_counter()
        process = self.start(resume=False)
        process.join()
        if process.exitcode:
            raise RuntimeError(f"the run ended with code {process.exitcode}; see {self.log}")
        return time.perf_counter() - start

    @property
    def folder(self) -> Path | None:
        """The newest run folder."""
        return max((self.runs / "a").glob("*"), default=None)

    def newest_step(self) -> int | None:
        """Optimizer steps in the newest whole checkpoint."""
        for path in checkpoints_in(self.folder / "checkpoints") if self.folder else ():
            with contextlib.suppress(ValueError):  # damaged
                return int(read_checkpoint(path)["global_step"])
        return None


def wait_for_write(folder: Path | None, process: Any, seconds: float) -> bool:
    """Waits until a checkpoint is being written."""
    end = time.perf_counter() + seconds
    while folder is not None and time.perf_counter() < end and process.is_alive():
        if any((folder / "checkpoints").glob(".*.tmp")):
            return True
    return False


def disturb(runner: Runner, whole: Path, kills: int, length: float, chance: random.Random) -> Tally:
    """Kills and resumes until so many kills are spent and the last run has finished."""
    tally, resume = Tally(), False
    while True:
        process = runner.start(resume)
        tally.resumes += resume
        if tally.kills < kills:
            process.join(chance.uniform(0.2, 1.0) * length)
            aims_at_write = bool(tally.kills % 2)
            caught = aims_at_write and wait_for_write(runner.folder, process, length)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                process.join()
                tally.kills += 1
                tally.while_writing += caught
                saved = runner.newest_step()
                resume = saved is not None
                if saved is not None:
                    tally.most_lost = max(tally.most_lost, runner.step.value - saved)
                continue
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a run ended with code {process.exitcode}; see {runner.log}")
        assert runner.folder is not None
        tally.finished += 1
        tally.identical &= is_identical(whole, runner.folder)
        resume = False
        if tally.kills >= kills:
            return tally


def is_identical(one: Path, other: Path) -> bool:
    """Compares the final checkpoints, the last and the best, and every row of metrics.csv."""
    differing = []
    for file in ("last.ckpt", "best.ckpt"):
        states = [read_checkpoint(folder / "checkpoints" / file) for folder in (one, other)]
        found = [name for name in COMPARED if not equal(*(state.get(name) for state in states))]
        differing += [f"{name} of {file}" for name in found]
    tables = [(folder / "metrics.csv").read_text(encoding="utf-8") for folder in (one, other)]
    if tables[0] != tables[1]:
        differing.append("metrics.csv")
    if differing:
        print(f"{other} differs in {', '.join(differing)}")
    return not differing


def equal(one: Any, other: Any) -> bool:
    """Equal to the last bit, in nested values too."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other or (one != one and other != other))


def measure(
    name: str, kills: int, seed: int, folder: Path, flags: Sequence[str] = ()
) -> dict[str, Any]:
    """One job, with more flags of train.py: an undisturbed run, then the disturbed ones."""
    job = [*JOBS[name], *flags]
    whole = Runner(job, folder / f"{name}-whole")
    whole.run()  # also fills caches
    length = whole.run()
    assert whole.folder is not None
    disturbed = Runner(job, folder / f"{name}-killed")
    tally = disturb(disturbed, whole.folder, kills, length, random.Random(seed))
    return {"job": name, "seconds": round(length, 1), "interval": INTERVAL} | tally.__dict__


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.kill_resume", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(JOBS))
    parser.add_argument("--batches", type=int, help="of an epoch; default: all")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args(argv)
    import train  # noqa: F401  # so that every forked process has it

    folder = Path(tempfile.mkdtemp(prefix="kill_resume-"))
    jobs = [arguments.only] if arguments.only else list(JOBS)
    flags = ["--limit_train_batches", str(arguments.batches)] if arguments.batches else []
    figures = [measure(name, arguments.kills, arguments.seed, folder, flags) for name in jobs]
    print(f"{'job':6} kills (while writing)  resumes  runs  most steps lost  identical")
    for row in figures:
        print(
            f"{row['job']:6} {row['kills']:5} {row['while_writing']:15}  {row['resumes']:7}  "
            f"{row['finished']:4}  {row['most_lost']:6} of {INTERVAL:5}  "
            f"{'yes' if row['identical'] else 'NO'}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    is_good = all(row["identical"] and row["most_lost"] <= INTERVAL for row in figures)
    if is_good:
        shutil.rmtree(folder)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
