import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest

from datamodules.cache_folder import build_once, cache_folder, locked


def slow_build(folder: Path) -> None:
    with (folder / "log").open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.3)


def build_in_process(folder: Path, ready: multiprocessing.Barrier) -> None:
    ready.wait()
    build_once(folder, slow_build)


def test_several_processes_build_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(3)
    arguments = (tmp_path / "entry", ready)
    processes = [context.Process(target=build_in_process, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len((tmp_path / "entry" / "log").read_text().split()) == 1


def test_a_failed_build_leaves_nothing(tmp_path):
    def fail(folder: Path) -> None:
        (folder / "part").write_text("x")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        build_once(tmp_path / "entry", fail)
    assert list(tmp_path.iterdir()) == []
    build_once(tmp_path / "entry", slow_build)
    assert (tmp_path / "entry" / "log").is_file()


def test_a_lock_is_held_by_one_at_a_time_though_its_file_comes_and_goes(tmp_path):
    inside, most = 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with locked(tmp_path / "lock"):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == 1
    assert list(tmp_path.iterdir()) == []


def test_remains_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / ".entry-abc").mkdir()
    (tmp_path / ".entry-abc" / "part").write_text("x")
    build_once(tmp_path / "entry", slow_build)
    assert not (tmp_path / ".entry-abc").exists()


def test_where_the_cache_lies(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder(None) == tmp_path / "xdg" / "lightning-foundry"
    assert cache_folder(str(tmp_path / "mine")) == tmp_path / "mine"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(None) == tmp_path / ".cache" / "lightning-foundry"


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="choose another by --data.cache_dir"):
        cache_folder(str(tmp_path / "file" / "below"))
