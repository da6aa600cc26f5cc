"""Whether two states are the same to the last bit."""

from typing import Any

import torch


def assert_equal(one: Any, other: Any, where: str = "checkpoint") -> None:
    """Equal to the last bit, in nested values too."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            assert_equal(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for index, pair in enumerate(zip(one, other, strict=True)):
            assert_equal(*pair, f"{where}[{index}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other or (one != one and other != other), (where, one, other)
