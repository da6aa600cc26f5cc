"""A job of SLURM: which runs were its own, and when a process is none of its tasks."""

import os
import subprocess
from pathlib import Path

import pytest

from cli.slurm import ignore_stray_slurm, note_job, requeue


def test_jobs_of_an_array_and_a_missing_tool(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    asked: list[list[str]] = []
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setattr(subprocess, "run", lambda command, **options: asked.append(command))
    requeue()
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    requeue()
    assert [command[-1] for command in asked] == ["5", "7_3"]
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nowhere")
    requeue()
    assert "could not be put back into the queue" in capsys.readouterr().err


def test_a_shell_inside_an_allocation_is_no_slurm_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NAME", "anything")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    assert "not started by srun" in str(ignore_stray_slurm())
    assert os.environ["SLURM_JOB_NAME"] == "interactive"
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert ignore_stray_slurm() is None


def test_each_job_is_noted_once_in_the_run_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    note_job(tmp_path)
    assert not list(tmp_path.iterdir())
    for job in ("5", "5", "6"):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        note_job(tmp_path)
    assert (tmp_path / "slurm_jobs").read_text() == "5\n6\n"
