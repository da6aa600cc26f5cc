"""Which process tells an error that several have."""

import os

import pytest

from cli import ranks


@pytest.mark.parametrize(
    ("started_by", "parent", "launched", "ends"),
    [
        (None, -1, 0.0, False),  # by torchrun, not waited for
        (None, -1, 0.1, True),
        (str(os.getppid()), os.getppid(), 0.0, False),  # by rank 0, which goes on
        ("-1", -1, 0.0, True),
    ],
)
def test_a_rank_is_silent_where_the_one_that_started_it_ends(
    monkeypatch: pytest.MonkeyPatch,
    started_by: str | None,
    parent: int,
    launched: float,
    ends: bool,
) -> None:
    monkeypatch.setattr(ranks, "STARTED_BY", started_by)
    monkeypatch.setattr(ranks, "PARENT", parent)
    monkeypatch.setattr(ranks, "PATIENCE", 0.1)
    assert ranks.starter_ends(launched) is ends


def test_one_rank_has_no_thread_and_no_one_to_tell() -> None:
    errors = ranks.SharedErrors(pytest.fail)
    assert errors.share("error: a\n", 1) is None
