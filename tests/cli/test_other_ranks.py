"""Which process tells an error that several have."""

import os

import pytest

from cli.other_ranks import is_told_elsewhere


def test_rank_zero_always_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.other_ranks.PARENT", -1)
    assert not is_told_elsewhere()


@pytest.mark.parametrize("parent", [os.getppid(), -1])
def test_another_rank_is_silent_where_the_one_that_started_it_ends(
    monkeypatch: pytest.MonkeyPatch, parent: int
) -> None:
    monkeypatch.setattr("cli.other_ranks.is_rank_zero", lambda: False)
    monkeypatch.setattr("cli.other_ranks.PARENT", parent)
    assert is_told_elsewhere(patience=0.1) is (parent == -1)
