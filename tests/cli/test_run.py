"""Run folders: made once, never shared by accident, found again; errors: one message and a code."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from pytorch_lightning.utilities import rank_zero_only

from cli.problems import UsageError
from cli.ranks import RankError
from cli.run import ENVIRONMENT_NAME, Run, create_folder, tell


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(ENVIRONMENT_NAME, raising=False)
    yield
    os.environ.pop(ENVIRONMENT_NAME, None)


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    folders = {create_folder(str(tmp_path), "a") for _ in range(5)}
    assert len(folders) == 5
    assert all(folder and (folder / "checkpoints").is_dir() for folder in folders)


def test_other_ranks_use_the_first_ranks_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = create_folder(str(tmp_path), "a")
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    assert create_folder(str(tmp_path), "a") == folder
    monkeypatch.delenv(ENVIRONMENT_NAME)
    assert create_folder(str(tmp_path), "a") is None
    assert len(list((tmp_path / "a").iterdir())) == 1


def test_an_unwritable_place_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"cannot make the run folder .* --runs_dir"):
        create_folder(str(tmp_path / "file"), "a")


def resumed(folder: Path) -> dict[str, object]:
    """The configuration of a run that goes on in a folder."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 1\n")
    checkpoint = str(folder / "checkpoints" / "last.ckpt")
    return {"fast_dev_run": False, "resume": checkpoint, "runs_dir": "", "experiment": ""}


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_run_that_cannot_be_written_in_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    configuration = resumed(tmp_path / "run")

    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number), str(tmp_path / "run" / ".lock"))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="cannot write in the run") as caught:
        Run().open_folder(configuration)
    reason = os.strerror(number)
    assert f"{tmp_path / 'run'}: {reason}; copy it to where that is possible" in str(caught.value)
    assert (tmp_path / "run" / "config.yaml").read_text() == "seed: 1\n"


def test_only_one_process_works_in_a_folder(tmp_path: Path, capsys) -> None:
    configuration = resumed(tmp_path / "run")
    with Run() as first:
        first.open_folder(configuration)
        with Run() as second:
            second.open_folder(configuration)
        assert second.exit_code == 1
        message = f"error: another process is training in {tmp_path / 'run'}; wait for it or stop"
        assert capsys.readouterr().err.startswith(message)
    with Run() as third:
        third.open_folder(configuration)
    assert (first.exit_code, third.exit_code) == (0, 0)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    run = Run()
    with run:
        run.open_folder(resumed(tmp_path / "run"))
    assert run.exit_code == 0
    assert not recwarn.list


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UsageError(["a", "b"]), 2, "error: a\nerror: b\n"),
        (OSError(errno.ENOSPC, "no space", "x"), 1, "error: x: the disk is full (no space)\n"),
    ],
)
def test_an_expected_error_is_a_message_and_a_code(
    capsys, error: Exception, code: int, text: str
) -> None:
    run, done = Run(), []
    with run:
        run.at_end(lambda: done.append(1))
        run.at_end(lambda: done.append(2))
        raise error
    assert run.exit_code == code  # type: ignore[unreachable]
    assert capsys.readouterr().err == text
    assert done == [2, 1]


def test_any_other_error_keeps_its_trace(capsys) -> None:
    run = Run()
    with pytest.raises(KeyError, match="mine"), run:
        raise KeyError("mine")
    assert run.exit_code == 1
    assert capsys.readouterr().err == ""


def test_a_signal_is_no_error(capsys) -> None:
    with pytest.raises(SystemExit), Run():
        raise SystemExit(143)
    assert capsys.readouterr().err == ""


def test_errors_of_another_rank_name_it(capsys) -> None:
    tell(RankError(3, 1, "error: a\nerror: b error: c\n"))
    tell(RankError(2, 1, "Traceback ...\nKeyError: 1\n"))
    assert capsys.readouterr().err == (
        "error: rank 3: a\nerror: rank 3: b error: c\non rank 2:\nTraceback ...\nKeyError: 1\n"
    )


def test_lines_are_said_once_for_all_ranks(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    Run().say("a", None, "", "b")
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    Run().say("c")
    assert capsys.readouterr().out == "a\nb\n"
