"""The export specification, and what it refuses when the fit starts."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from exporters.spec import ExportSpec, assert_exportable, check, check_export
from tests.tiny import TinyImages, tiny_classifier

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


class Returns(nn.Module):
    """Returns whatever a function makes of the images."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Any:
        return self.function(images.float().flatten(1))


def test_examples_have_a_batch_of_two() -> None:
    assert [list(x.shape) for x in ExportSpec.from_json(IMAGES).example()] == [[2, 1, 8, 8]]
    tokens, lengths = ExportSpec.from_json(TEXT).example()
    assert tokens.shape == (2, 7)
    assert lengths.tolist() == [1, 1]
    rows = {"images": np.arange(5 * 64, dtype=np.uint8).reshape(5, 1, 8, 8)}
    (real,) = ExportSpec.from_json(IMAGES).example(rows)
    assert (real.numpy() == rows["images"][:2]).all()


def test_a_file_that_no_bundle_takes_shows_before_training() -> None:
    data = TinyImages()
    data.setup()
    data.files = {"labels.py": ""}
    with pytest.raises(ValueError, match=r"the datamodule brings files .*'labels\.py'"):
        check_export(tiny_classifier(data).model, data)


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


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: (x, x), r"forward returns tuple, expected one tensor of logits \[2,3\]"),
        (lambda x: x.sum(1), r"forward returns \[2\], expected logits \[2,3\]"),
        (lambda x: x[:, :4], r"forward returns \[2, 4\], expected logits \[2,3\]"),
        (lambda x: x[:1, :3], r"forward returns \[1, 3\], expected logits \[2,3\]"),
        (lambda x: x[:, :3] / 0 - x[:, :3] / 0, "not finite"),
    ],
)
def test_wrong_outputs_are_refused(function: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(Returns(function), ExportSpec.from_json(IMAGES), num_classes=3)


def test_signature_and_example_must_fit() -> None:
    module = Returns(lambda x: x[:, :3])
    with pytest.raises(ValueError, match=r"takes \(images\), .* gives \(tokens, lengths\)"):
        check(module, ExportSpec.from_json(TEXT))
    spec = ExportSpec.from_json(IMAGES)
    with pytest.raises(ValueError, match="batch of at least 2"):
        check(module, spec, [torch.zeros(1, 1, 8, 8, dtype=torch.uint8)])
    with pytest.raises(ValueError, match=r"expected images uint8 \[batch,1,8,8\], found float32"):
        check(module, spec, [torch.zeros(2, 1, 8, 8)])
    with pytest.raises(ValueError, match=r"found uint8 \[2,3,8,8\]"):
        check(module, spec, [torch.zeros(2, 3, 8, 8, dtype=torch.uint8)])


def test_the_check_leaves_the_module_as_it_was() -> None:
    data = TinyImages()
    data.setup()
    model = tiny_classifier(data).model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check_export(model, data)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


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
