"""The export specification, and what it refuses when the fit starts."""

import numpy as np
import pytest
from torch import nn

from exporters.spec import ExportSpec, assert_exportable

IMAGES = {
    "inputs": [{"name": "images", "dtype": "uint8", "shape": ["batch", 1, 8, 8]}],
    "dynamic": {"batch": [1, 1024]},
}
TEXT = {
    "inputs": [
        {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]},
        {"name": "lengths", "dtype": "int64", "shape": ["batch"]},
    ],
    "dynamic": {"batch": [1, 1024], "length": [1, 60]},
}


def test_examples_have_a_batch_of_two() -> None:
    assert [list(x.shape) for x in ExportSpec.from_json(IMAGES).example()] == [[2, 1, 8, 8]]
    tokens, lengths = ExportSpec.from_json(TEXT).example()
    assert tokens.shape == (2, 7)
    assert lengths.tolist() == [1, 1]
    rows = {"images": np.arange(5 * 64, dtype=np.uint8).reshape(5, 1, 8, 8)}
    (real,) = ExportSpec.from_json(IMAGES).example(rows)
    assert (real.numpy() == rows["images"][:2]).all()


def test_text_inputs_share_their_axes() -> None:
    shapes = ExportSpec.from_json(TEXT).dynamic_shapes()
    assert shapes[0][0] is shapes[1][0]
    assert ExportSpec.from_json(TEXT).lengths_name == "lengths"
    assert ExportSpec.from_json(IMAGES).lengths_name is None


def test_all_contradictions_are_listed_at_once() -> None:
    wrong = {
        "inputs": [{"name": "x", "dtype": "int7", "shape": [1, "length"]}],
        "dynamic": {"batch": [5, 2]},
    }
    with pytest.raises(ValueError, match="int7.*first axis .*'batch'.*no bounds.*5,2"):
        ExportSpec.from_json(wrong)


def test_training_mode_is_refused_by_name() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()
    assert_exportable(module)
    module[1].train()
    with pytest.raises(ValueError, match="1 is in training mode"):
        assert_exportable(module)


def test_weights_that_are_not_finite_are_refused_by_name() -> None:
    module = nn.Sequential(nn.Linear(2, 2)).eval()
    module[0].weight.data[1, 0] = float("nan")
    with pytest.raises(ValueError, match=r"0\.weight holds 1 values of 4 that are NaN"):
        assert_exportable(module)


def test_other_values_of_the_state_are_left_alone() -> None:
    class Remembers(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"seen": 3}

    assert_exportable(Remembers(2, 2).eval())


@pytest.mark.parametrize(
    "wrong",
    [
        {"images": {"dtype": "uint8", "shape": ["batch", 1, 8, 8]}},
        {"inputs": IMAGES["inputs"]},
        {"inputs": ["images"], "dynamic": {}},
        {"inputs": [], "dynamic": ["batch"]},
        {"inputs": [], "dynamic": {"batch": 8}},
        {"inputs": [], "dynamic": {"batch": [1, 2, 3]}},
    ],
)
def test_another_form_is_one_message(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r'input_spec is \{"inputs": .* got \{'):
        ExportSpec.from_json(wrong)
