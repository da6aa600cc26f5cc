"""What a signal does before, during and after training, and what it says."""

import os
import signal
from pathlib import Path

import pytest

from cli.stop_signals import StopSignals, handled_signals


def send(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_at_once_outside_of_training(name: str, code: int, capsys) -> None:
    with StopSignals(), pytest.raises(SystemExit) as stopped:
        send(name)
    assert stopped.value.code == code
    assert capsys.readouterr().err == f"stopped by {name}\nno checkpoint had been written yet\n"


def test_during_training_it_is_noted_and_the_first_one_counts(tmp_path: Path, capsys) -> None:
    checkpoint = tmp_path / "last.ckpt"
    checkpoint.touch()
    with StopSignals(["--allow_external_code"]) as signals:
        signals.defer()
        send("SIGTERM")
        send("SIGTERM")
        assert signals.received == signal.SIGTERM
        assert 0 <= signals.seconds_waited < 10
        with pytest.raises(SystemExit) as stopped:
            signals.leave(signals.received, checkpoint)
    assert stopped.value.code == 143
    command = f"python train.py --resume {checkpoint} --allow_external_code"
    assert capsys.readouterr().err == f"stopped by SIGTERM\ngo on with:\n  {command}\n"


def test_one_that_came_in_the_last_step_is_not_lost() -> None:
    with StopSignals() as signals:
        signals.defer()
        send("SIGTERM")
        with pytest.raises(SystemExit):
            signals.act_at_once(None)


def test_the_handlers_of_before_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        signals.defer()
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("deferred", "rank_zero_ends", "code"),
    [(True, False, 0), (False, True, 0), (False, False, 143)],
)
def test_other_ranks_leave_the_exit_code_to_rank_zero(
    monkeypatch: pytest.MonkeyPatch, capsys, deferred: bool, rank_zero_ends: bool, code: int
) -> None:
    """Lightning kills the main process when one that it started ends with an error first."""
    monkeypatch.setattr("cli.stop_signals.is_rank_zero", lambda: False)
    monkeypatch.setattr("cli.stop_signals.starter_ends", lambda: rank_zero_ends)
    with StopSignals() as signals:
        signals.is_deferred = deferred
        with pytest.raises(SystemExit) as stopped:
            signals.leave(signal.SIGTERM, None)
    assert stopped.value.code == code
    assert capsys.readouterr().err == ""


def test_notice_only_under_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert signal.SIGUSR1 not in handled_signals()
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    assert signal.SIGUSR1 in handled_signals()
