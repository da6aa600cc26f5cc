"""Profilers: what they leave, also where a run ends early."""

import copy
from pathlib import Path

import pytest

from cli.trainer import OperatorProfiler, build_profiler
from tests.tiny import TinyImages, tiny_classifier


def test_without_a_folder_nothing_is_profiled_and_that_is_said(capsys) -> None:
    assert build_profiler(None, None) is None
    assert capsys.readouterr().out == ""
    assert build_profiler("simple", None) is None
    assert capsys.readouterr().out == "no profile: this run leaves no folder to write it to\n"


@pytest.mark.parametrize("end", ["describe", "teardown", "__del__"])
def test_a_run_that_ends_before_its_first_step_leaves_no_trace(tmp_path: Path, end: str) -> None:
    profiler = build_profiler("pytorch", tmp_path)
    assert isinstance(profiler, OperatorProfiler)
    profiler.setup("fit", 0)
    profiler.start("on_fit_start")
    profiler.stop("on_fit_start")
    getattr(profiler, end)(*(["fit"] if end == "teardown" else []))
    if end == "describe":
        text = (tmp_path / "fit-profile-0.txt").read_text()
        assert text == "nothing was recorded: the run was too short"


def test_a_module_that_is_profiled_can_be_copied(tmp_path: Path) -> None:
    """The rate finder, the checks before training and averaging all copy it."""
    data = TinyImages()
    module = tiny_classifier(data)
    profiler = build_profiler("pytorch", tmp_path)
    assert isinstance(profiler, OperatorProfiler)
    profiler._lightning_module = module
    profiler.start("on_fit_start")
    module.model(data.example_batch()[0]["images"])
    copy.deepcopy(module)
    profiler.teardown("fit")
