"""Stopping a real run: signals, kills, damaged files, two processes in one folder, replay."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fresh_process import ROOT, fork_server, run_script
from tests.same_bits import assert_equal
from tests.test_train import NO_EXPORT, only_run
from train import main

pytestmark = pytest.mark.slow

ARGUMENTS = [*NO_EXPORT, "--lr_finder.enabled", "false", "--gradient_check.enabled", "false"]


def run_train(arguments: list[str], log: str) -> None:
    """The process: as a shell starts it, with Ctrl-C not ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    with (
        open(log, "w") as stream,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        os.dup2(stream.fileno(), 2)  # the handler writes to the descriptor
        code = main(arguments)
    os._exit(code)


def start(folder: Path, *arguments: str) -> Any:
    words = [*ARGUMENTS, "--runs_dir", str(folder / "runs"), *arguments]
    process = fork_server().Process(target=run_train, args=(words, str(folder / "log")))
    process.start()
    return process


def wait_for_epochs(folder: Path, process: Any, number: int) -> None:
    """Until metrics.csv has so many rows."""
    for _ in range(1200):
        tables = list(folder.glob("runs/*/*/metrics.csv"))
        if tables and len(tables[0].read_text().splitlines()) > number:
            return
        assert process.is_alive(), (folder / "log").read_text()
        time.sleep(0.05)
    raise TimeoutError


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_leaves_a_checkpoint_and_says_how_to_go_on(
    tmp_path: Path, name: str, code: int
) -> None:
    process = start(tmp_path, "--max_epochs", "500")
    wait_for_epochs(tmp_path, process, 1)
    os.kill(process.pid, getattr(signal, name))
    process.join(30)
    assert process.exitcode == code
    text = (tmp_path / "log").read_text()
    last = only_run(tmp_path / "runs") / "checkpoints" / "last.ckpt"
    assert f"stopped by {name}\ngo on with:\n  python train.py --resume {last}" in text
    assert "Traceback" not in text
    checkpoint = torch.load(last, weights_only=True)
    assert checkpoint["exact_resume"]["position"] >= 0
    assert not (last.parents[1] / "export").exists()


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    """The first one waits for the accumulation window, which here has no end in sight."""
    process = start(tmp_path, "--accumulate_grad_batches", "100000", "--max_epochs", "1000000")
    wait_for_epochs(tmp_path, process, 1)
    for _ in range(2):
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGINT)
    process.join(5)
    assert process.exitcode == 130


def test_a_signal_before_training_ends_at_once(tmp_path: Path) -> None:
    process = start(tmp_path, "--max_epochs", "500")
    while not (tmp_path / "log").exists() and process.is_alive():
        time.sleep(0.01)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGTERM)
    process.join(30)
    assert process.exitcode == 143


def test_slurm_gives_notice_and_the_job_goes_back_into_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A stand-in for scontrol notes its arguments; started again, the run resumes by itself."""
    tool = tmp_path / "bin" / "scontrol"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    process = multiprocessing.get_context("spawn").Process(
        target=run_train,
        args=(
            [*ARGUMENTS, "--runs_dir", str(tmp_path / "runs"), "--max_epochs", "500"],
            str(tmp_path / "log"),
        ),
    )
    process.start()
    wait_for_epochs(tmp_path, process, 1)
    os.kill(process.pid or 0, signal.SIGUSR1)
    process.join(30)
    assert process.exitcode == 143
    assert (tmp_path / "asked").read_text() == "requeue 77\n"
    run = only_run(tmp_path / "runs")
    done = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["epoch"]
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    again = [*ARGUMENTS, "--runs_dir", str(tmp_path / "runs"), "--max_epochs", str(done + 1)]
    assert main([*again, "--allow_changes"]) == 0
    assert only_run(tmp_path / "runs") == run
    assert f"epoch {done + 1}/{done + 1}" in capsys.readouterr().out


SHORT = [*ARGUMENTS, "--max_epochs", "2", "--limit_train_batches", "6"]


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, capsys) -> None:
    arguments = [*SHORT, "--runs_dir", str(tmp_path)]
    assert main(arguments) == 0
    folder = only_run(tmp_path) / "checkpoints"
    content = bytearray((folder / "last.ckpt").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "last.ckpt").write_bytes(content)
    capsys.readouterr()
    assert main([*arguments, "--resume", "auto"]) == 0
    output = capsys.readouterr().out
    assert f"{folder}/last.ckpt is damaged: " in output
    assert f"going on from {folder}/previous.ckpt instead" in output
    assert "epoch 2/2" in output
    for name in ("last", "previous", "best"):
        (folder / f"{name}.ckpt").write_bytes(b"cut off")
    assert main([*arguments, "--resume", "auto"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "last.ckpt is damaged" in error


def test_changes_are_shown_and_refused(tmp_path: Path, capsys) -> None:
    arguments = [*SHORT, "--runs_dir", str(tmp_path)]
    assert main(arguments) == 0
    last = str(only_run(tmp_path) / "checkpoints" / "last.ckpt")
    capsys.readouterr()
    changes = ["--resume", last, "--max_epochs", "3", "--data.num_workers", "0"]
    assert main(changes) == 1
    shown = capsys.readouterr()
    assert "max_epochs        2       3    changes the training" in shown.out
    assert "data.num_workers  None    0    none on what is learnt" in shown.out
    assert "add --allow_changes if that is meant" in shown.err
    assert main([*changes, "--allow_changes"]) == 0
    assert "epoch 3/3" in capsys.readouterr().out
    assert main(["--resume", last, "--optimizer.name", "sgd", "--allow_changes"]) == 2
    assert "is of --optimizer adamw, which cannot be changed any more" in capsys.readouterr().err


def test_resume_auto_takes_the_run_with_these_settings(tmp_path: Path, capsys) -> None:
    for seed in ("3", "4"):
        assert main([*SHORT, "--runs_dir", str(tmp_path), "--seed", seed]) == 0
    first, second = sorted(tmp_path.glob("*/*"))
    capsys.readouterr()
    assert main([*SHORT, "--runs_dir", str(tmp_path), "--seed", "3", "--resume", "auto"]) == 0
    assert f"run folder: {first}" in capsys.readouterr().out
    assert main([*SHORT, "--runs_dir", str(tmp_path), "--seed", "5", "--resume", "auto"]) == 1
    shown = capsys.readouterr()
    assert "seed     4       5" in shown.out
    assert second.name > first.name


def test_two_processes_in_one_run_folder(tmp_path: Path, capsys) -> None:
    process = start(tmp_path, "--max_epochs", "500")
    wait_for_epochs(tmp_path, process, 1)
    last = only_run(tmp_path / "runs") / "checkpoints" / "last.ckpt"
    assert main(["--resume", str(last)]) == 1
    assert f"another process is training in {last.parents[1]}" in capsys.readouterr().err
    process.kill()
    process.join()


FAULTY = """
import torch
from lightning_modules.networks.small_cnn import SmallCNN

class Net(SmallCNN):
    def __init__(self, in_channels: int, image_size: tuple[int, int], num_classes: int) -> None:
        super().__init__(in_channels, image_size, num_classes, width=4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, images):
        if self.training:
            self.calls += 1
        broken = torch.where(self.calls == 8, torch.inf, 0.0)
        images = images.clone()
        images[1] += broken
        return super().forward(images)
"""


def test_a_step_that_breaks_is_replayed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (tmp_path / "faulty_net.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(tmp_path)
    arguments = [*ARGUMENTS, "--model", "faulty_net.Net", "--allow_external_code"]
    arguments += ["--runs_dir", str(tmp_path / "runs"), "--max_epochs", "2"]
    assert main([*arguments, "--checkpoint_every", "5", "--limit_train_batches", "20"]) == 1
    shown = capsys.readouterr()
    assert "became NaN or infinite in epoch 0, between steps 5 and 10" in shown.err
    found = "reproduced: step 7, batch 7 of epoch 0: first value that is not finite in the forward"
    assert f"{found} pass of network.stages.0.0, operation ConvolutionBackward0; samples " in (
        shown.out
    )
    (replay,) = (tmp_path / "runs").glob("*/*/checkpoints/replay-step-10.ckpt")
    assert f"python train.py --replay {replay}" in shown.out
    assert main(["--replay", str(replay), "--allow_external_code"]) == 0
    assert found in capsys.readouterr().out
    last = replay.with_name("last.ckpt")
    assert main(["--replay", str(last), "--allow_external_code"]) == 1
    assert "not a replay file" in capsys.readouterr().err


def test_two_ranks_stop_together_and_resume_exactly(tmp_path: Path) -> None:
    """The signal reaches rank 0 alone."""
    words = [*ARGUMENTS, "--accelerator", "cpu", "--devices", "2", "--strategy", "ddp"]
    words += ["--max_epochs", "4", "--limit_train_batches", "30", "--ema.enabled", "true"]
    words += ["--data.crop_padding", "1", "--accumulate_grad_batches", "2"]

    whole = run_script("train.py", *words, "--runs_dir", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    command = [sys.executable, "train.py", *words, "--runs_dir", str(tmp_path / "runs")]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    stopped = subprocess.Popen(command, cwd=ROOT, **streams)
    for _ in range(3000):
        if any(len(t.read_text()) > 300 for t in tmp_path.glob("runs/*/*/metrics.csv")):
            break
        time.sleep(0.05)
    stopped.send_signal(signal.SIGTERM)
    text = stopped.communicate(timeout=60)[0]
    assert stopped.returncode == 143, text
    assert text.count("stopped by SIGTERM") == 1
    assert "Traceback" not in text
    resumed = run_script("train.py", *words, "--runs_dir", tmp_path / "runs", "--resume", "auto")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    folders = [only_run(tmp_path / name) for name in ("whole", "runs")]
    states = [torch.load(f / "checkpoints/last.ckpt", weights_only=True) for f in folders]
    for name in ("state_dict", "current_model_state", "optimizer_states", "exact_resume"):
        assert_equal(states[1][name], states[0][name], name)
    tables = [(folder / "metrics.csv").read_text() for folder in folders]
    assert tables[0] == tables[1]


def test_ctrl_c_in_a_terminal_reaches_both_ranks_and_ends_in_130(tmp_path: Path) -> None:
    words = [*ARGUMENTS, "--accelerator", "cpu", "--devices", "2", "--max_epochs", "500"]
    process = subprocess.Popen(
        [sys.executable, "train.py", *words, "--runs_dir", str(tmp_path / "runs")],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for _ in range(3000):
        if any(len(t.read_text()) > 300 for t in tmp_path.glob("runs/*/*/metrics.csv")):
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    text = process.communicate(timeout=60)[1]
    assert process.returncode == 130, text
    assert text.count("stopped by SIGINT\ngo on with:") == 1
    assert "Traceback" not in text


def test_killed_and_resumed_runs_end_with_the_same_bits() -> None:
    command = [sys.executable, "-m", "benchmarks.kill_resume", "--only", "image"]
    command += ["--kills", "5", "--batches", "40"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
