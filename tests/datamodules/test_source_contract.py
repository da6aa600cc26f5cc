"""A datamodule of somebody else: what it may leave out, and what it may not."""

from types import SimpleNamespace
from typing import Any

import pytest

from datamodules.contract import NEEDED, check_source
from datamodules.digits import Digits


def test_what_few_need_gets_a_default() -> None:
    own: Any = SimpleNamespace(**dict.fromkeys(NEEDED, "x") | {"kind": "text"})
    check_source(own)
    assert own.files == {}
    assert own.notes == []
    own.initialise("network")
    own.notes = ["kept"]
    check_source(own)
    assert own.notes == ["kept"]


def test_all_that_is_missing_comes_in_one_message() -> None:
    with pytest.raises(ValueError, match=r"datamodule SimpleNamespace lacks") as caught:
        check_source(SimpleNamespace(kind="image", class_names=["a"]))
    lines = [line.strip().split(":")[0] for line in str(caught.value).splitlines()[1:]]
    assert lines == [*list(NEEDED)[2:], "normalisation"]


def test_a_property_is_not_run() -> None:
    class Broken(SimpleNamespace):
        @property
        def fingerprint(self) -> str:
            raise AttributeError("a fault of its own")

    check_source(Broken(**dict.fromkeys(NEEDED.keys() - {"fingerprint"}, "x") | {"kind": "text"}))


def test_ours_have_all() -> None:
    data = Digits()
    data.setup()
    check_source(data)
