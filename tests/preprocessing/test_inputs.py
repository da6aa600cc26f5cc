"""Inputs by name, whatever a batch packs them in, and samples of several sizes in one array."""

from pathlib import Path

import numpy as np
import pytest

from preprocessing.inputs import InputsSpec, named, padded_stack, shape_in_words, values_of
from preprocessing.reader import arrays_of


@pytest.mark.parametrize("inputs", [{"a": 1, "b": 2}, (1, 2), [1, 2]])
def test_inputs_have_names_in_their_order(inputs: object) -> None:
    assert named(inputs, ["a", "b"]) == {"a": 1, "b": 2}
    assert values_of(inputs) == [1, 2]


def test_one_input_needs_no_packing() -> None:
    assert named(5, ["a"]) == {"a": 5}
    assert values_of(5) == [5]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"b": 2, "a": 1}, "the inputs b, a, but input_spec has a, b: names and order must agree"),
        ({}, "the inputs none, but input_spec has a, b"),
        ((1, 2, 3), "a batch has 3 inputs, but input_spec has a, b"),
        (1, "a batch has 1 inputs, but input_spec has a, b"),
    ],
)
def test_other_inputs_are_refused(inputs: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        named(inputs, ["a", "b"])


def test_samples_are_filled_up_with_zeros() -> None:
    stacked = padded_stack([np.array([1, 2, 3]), np.array([4])])
    assert stacked.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert padded_stack([np.array(3), np.array(5)]).tolist() == [3, 5]
    assert padded_stack([np.ones((1, 2), np.uint8)] * 2).dtype == np.uint8


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([{"name": "a b", "dtype": "uint8", "shape": ["batch"]}], "'a b' is no name"),
        ([{"name": "a", "dtype": "uint8", "shape": ["batch"]}] * 2, "a comes twice"),
    ],
)
def test_names_are_those_of_arguments(inputs: list[dict[str, object]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InputsSpec.from_json({"inputs": inputs, "dynamic": {"batch": [1, 4]}})


def test_words_for_what_is_packed() -> None:
    packed = [np.zeros(1, np.float32), {"a": None}, ()]
    assert shape_in_words(packed) == (
        "a list of float32 [1], a dict of a: NoneType, a tuple of nothing"
    )


def test_a_file_of_several_samples_is_told_that_it_should_be_one(tmp_path: Path) -> None:
    item = {"name": "left", "dtype": "float32", "shape": ["batch", 2]}
    spec = InputsSpec.from_json({"inputs": [item], "dynamic": {"batch": [1, 8]}})
    np.savez(tmp_path / "rows.npz", left=np.zeros((5, 2), np.float32))
    with pytest.raises(ValueError, match="^a file is one sample, without the axis of the batch: "):
        arrays_of(tmp_path / "rows.npz", spec)
