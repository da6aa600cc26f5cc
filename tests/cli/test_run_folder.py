"""Run folders: made once, never shared by accident, found again."""

import errno
import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from pytorch_lightning.utilities import rank_zero_only

from cli.run_folder import ENVIRONMENT_NAME, create_run_folder, prepare_folder


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(ENVIRONMENT_NAME, raising=False)
    yield
    os.environ.pop(ENVIRONMENT_NAME, None)


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    folders = {create_run_folder(str(tmp_path), "a") for _ in range(5)}
    assert len(folders) == 5
    assert all(folder and (folder / "checkpoints").is_dir() for folder in folders)


def test_other_ranks_use_the_first_ranks_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = create_run_folder(str(tmp_path), "a")
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    assert create_run_folder(str(tmp_path), "a") == folder
    monkeypatch.delenv(ENVIRONMENT_NAME)
    assert create_run_folder(str(tmp_path), "a") is None
    assert len(list((tmp_path / "a").iterdir())) == 1


def test_an_unwritable_place_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"cannot make the run folder .* --runs_dir"):
        create_run_folder(str(tmp_path / "file"), "a")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_run_that_cannot_be_written_in_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    run = tmp_path / "a" / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text("seed: 1\n")

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number), str(run / ".lock"))

    monkeypatch.setattr(os, "open", refuse)
    checkpoint = str(run / "checkpoints" / "last.ckpt")
    configuration = {"fast_dev_run": False, "resume": checkpoint}
    with ExitStack() as held, pytest.raises(OSError, match="cannot write in the run") as caught:
        prepare_folder(configuration, held)
    reason = os.strerror(number)
    assert f"{run}: {reason}; copy it to where that is possible" in str(caught.value)
    assert (run / "config.yaml").read_text() == "seed: 1\n"
