"""This job of the SLURM batch system: who it is, where it has worked, and back into the queue."""

import os
import subprocess
import sys
from pathlib import Path

JOBS = "slurm_jobs"  # in a run folder: the jobs that have worked in it, one a line


def ignore_stray_slurm() -> str | None:
    """Inside an allocation but not started by srun, a process is an ordinary one.

    Lightning takes any process with SLURM_NTASKS for a SLURM task
    (Lightning-AI/pytorch-lightning#12774); its documented way out is the job name.
    """
    if "SLURM_NTASKS" in os.environ and "SLURM_PROCID" not in os.environ:
        os.environ["SLURM_JOB_NAME"] = "interactive"
        return "SLURM variables are set, but this was not started by srun: running as one process"
    return None


def slurm_job() -> str | None:
    """This SLURM job, by which it is put back into the queue: JOB, or ARRAY_TASK."""
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID', '0')}"
    return os.environ.get("SLURM_JOB_ID")


def note_job(run: Path) -> None:
    """Writes down that this job has worked in a run folder."""
    job = slurm_job()
    if job is not None and job not in jobs_of(run):
        with (run / JOBS).open("a", encoding="utf-8") as file:
            file.write(f"{job}\n")


def jobs_of(run: Path) -> list[str]:
    """The jobs that have worked in a run folder."""
    path = run / JOBS
    return path.read_text(encoding="utf-8").split() if path.is_file() else []


def requeue() -> None:
    """Puts this SLURM job back into the queue."""
    job = slurm_job() or ""
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, timeout=60)
        print(f"job {job} is back in the queue", file=sys.stderr)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"error: job {job} could not be put back into the queue: {error}", file=sys.stderr)
