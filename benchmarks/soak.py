"""Does memory stay flat in a long run: `python -m benchmarks.soak --steps 2000`.

Trains on images and on texts with every callback on and W&B (offline) as the logger, and samples
the resident memory of the process, and of all its loader workers together, at every 20th step.
Printed: the median slope over the steps after the first quarter, in MB per 1,000 steps.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.train_process import run_train

EVERY = 20
WARM_UP = 0.25  # share of the steps
LIMIT = 1.0  # MB per 1,000 steps
JOBS = {
    "image": ["--data.crop_padding", "1", "--val_check_interval", "0.5"],
    "image, 2 workers": ["--data.crop_padding", "1", "--data.num_workers", "2"],
    "text": ["--config", "configs/bbc_news.yaml"],
}
COMMON = [
    *("--logger", "wandb", "--ema.enabled", "true", "--max_epochs", "-1"),
    *("--export.enabled", "false", "--enable_progress_bar", "false"),
    *("--early_stopping.patience", "100000", "--checkpoint_every", "100"),
]


def resident_bytes(process: int) -> int:
    """Memory of a process that is its own, shared pages left out."""
    fields = Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


def workers_of(process: int) -> list[int]:
    """Loader processes among the direct and indirect children; W&B's service is none."""
    listing = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()
    children = [pid for child in map(int, listing) for pid in (child, *workers_of(child))]
    return [p for p in children if b"multiprocessing" in Path(f"/proc/{p}/cmdline").read_bytes()]


def child(arguments: list[str], log: Path, result: Path) -> None:
    """A run of train.py that notes (step, own bytes, workers' bytes)."""
    samples: list[tuple[int, int, int]] = []

    def sample(module: Any) -> None:
        step = module.trainer.global_step
        if step % EVERY == 0:
            workers = sum(map(resident_bytes, workers_of(os.getpid())))
            samples.append((step, resident_bytes(os.getpid()), workers))

    code = run_train(arguments, log, sample)
    result.write_text(json.dumps(samples), encoding="utf-8")
    os._exit(code)


def median_slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Theil-Sen: the median over all pairs of points, which an allocator's single jump or a
    garbage collection does not move, while a leak of every step does; x [M], y [M,C] -> [C].
    """
    first, second = np.triu_indices(len(x), k=1)
    return np.median((y[second] - y[first]) / (x[second] - x[first])[:, None], axis=0)


def measure(name: str, steps: int, folder: Path) -> dict[str, Any]:
    """One job in a process of its own."""
    log, result = folder / f"{name}.log", folder / f"{name}.json"
    arguments = [*JOBS[name], *COMMON, "--max_steps", str(steps), "--runs_dir", str(folder)]
    process = multiprocessing.get_context("fork").Process(
        target=child, args=(arguments, log, result)
    )
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{name} ended with code {process.exitcode}; see {log}")
    samples = np.array(json.loads(result.read_text(encoding="utf-8")), dtype=float)  # [M,3]
    late = samples[samples[:, 0] >= WARM_UP * steps]
    slopes = median_slopes(late[:, 0] / 1000, late[:, 1:] / 1e6)  # [2], MB per 1,000 steps
    return {
        "job": name,
        "steps": steps,
        "mb": float(late[-1, 1] / 1e6),
        "slope": float(slopes[0]),
        "workers_mb": float(late[-1, 2] / 1e6),
        "workers_slope": float(slopes[1]),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--only", choices=list(JOBS))
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args(argv)
    import train  # noqa: F401  # so that every forked process has it

    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    jobs = [arguments.only] if arguments.only else list(JOBS)
    figures = [measure(name, arguments.steps, folder) for name in jobs]
    print(f"{'job':17} steps    MB  MB/1,000 steps   workers MB  MB/1,000 steps")
    for row in figures:
        print(
            f"{row['job']:17} {row['steps']:5} {row['mb']:5.0f}  {row['slope']:14.2f}  "
            f"{row['workers_mb']:11.0f}  {row['workers_slope']:14.2f}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0 if all(max(row["slope"], row["workers_slope"]) < LIMIT for row in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
