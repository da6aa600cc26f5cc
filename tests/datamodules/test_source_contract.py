"""A datamodule of somebody else: what it may leave out, what it may not, and what is malformed."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from datamodules.contract import DEFAULTS, NEEDED, check_source, described, part
from datamodules.digits import Digits

SPEC = {
    "inputs": [
        {"name": "image", "dtype": "float32", "shape": ["batch", 1, 2, 2]},
        {"name": "boxes", "dtype": "float32", "shape": ["batch", 4]},
    ],
    "dynamic": {"batch": [1, 64]},
}


def inputs_of(count: int) -> dict[str, np.ndarray]:
    return {
        "image": np.zeros((count, 1, 2, 2), np.float32),
        "boxes": np.zeros((count, 4), np.float32),
    }


def batch_of(count: int = 4, **changes: Any) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    inputs = {name: torch.from_numpy(x) for name, x in inputs_of(count).items()} | changes
    return inputs, torch.zeros(count, dtype=torch.int64)


def source(**changes: Any) -> SimpleNamespace:
    """One that keeps the contract, but for the changes."""
    parts = {
        "class_names": ["a", "b"],
        "input_spec": SPEC,
        "fingerprint": "ab12",
        "train_targets": np.arange(6) % 2,
        "network_arguments": lambda: {"num_classes": 2},
        "example_batch": batch_of,
        "samples": lambda split, limit=None: (inputs_of(6), np.arange(6) % 2),
        **dict.fromkeys(("train_dataloader", "val_dataloader", "test_dataloader"), lambda: None),
    }
    return SimpleNamespace(**parts | changes)


def test_what_few_need_has_a_default_and_nothing_is_set_on_the_users_object() -> None:
    own = source()
    before = dict(vars(own))
    check_source(own)
    for name in DEFAULTS:
        part(own, name)
    assert vars(own) == before
    assert described(own) == {
        "task": "single_label",
        "class_names": ["a", "b"],
        "input_spec": SPEC,
        "preprocessing": {"kind": "arrays", **SPEC},
        "files": {},
        "normalisation": None,
        "fingerprint": "ab12",
    }
    assert part(own, "findings") == part(own, "loading") == part(own, "look")(True) == []
    assert part(own, "split_targets")["train"] is own.train_targets
    part(own, "initialise")("network")


def test_all_that_is_missing_comes_in_one_message() -> None:
    with pytest.raises(ValueError, match="datamodule SimpleNamespace does not keep") as caught:
        check_source(SimpleNamespace(class_names=["a", "b"]))
    lines = [line.strip().split(":")[0] for line in str(caught.value).splitlines()[1:]]
    assert lines == [f"lacks {name}" for name in list(NEEDED)[1:]]


def test_all_that_is_malformed_comes_in_one_message() -> None:
    wrong = {
        "class_names": ["a", "a"],
        "fingerprint": 5,
        "train_targets": [0, 1],
        "network_arguments": lambda: [2],
    }
    with pytest.raises(ValueError, match="does not keep the contract") as caught:
        check_source(source(**wrong))
    lines = str(caught.value).splitlines()[1:]
    assert [line.strip().split(":")[0] for line in lines] == [
        "fingerprint", "network_arguments", "task"
    ]  # fmt: skip  # targets cannot be judged without classes


IMAGES = {
    "inputs": [{"name": "images", "dtype": "uint8", "shape": ["batch", 3, 2, 2]}],
    "dynamic": {"batch": [1, 64]},
}
TARGETS = torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_names": ["a", 1]}, r"task: class_names: expected different texts, got \['a', 1\]"),
        ({"input_spec": {"inputs": []}}, "input_spec: input_spec is .* got {'inputs': "),
        ({"input_spec": {"inputs": [], "dynamic": {}}}, "input_spec: no inputs"),
        ({"fingerprint": ""}, "fingerprint: expected a text, got ''"),
        (
            {"train_targets": np.zeros(3, np.float32)},
            r"train_targets: targets are float32 \[3\], exp",
        ),
        (
            {"train_targets": np.array([0, 1, 7])},
            r"train_targets: label 7 in row 2 lies outside 0\.\.1",
        ),
        ({"network_arguments": lambda: 2}, "network_arguments: expected values by name, got 2"),
        ({"preprocessing": {"kind": "sound"}}, "preprocessing: has preprocessing of kind 'sound'"),
        ({"preprocessing": {"kind": "text"}}, "preprocessing: lacks its tokenizer.json"),
        ({"files": {"a.py": "x"}}, "preprocessing: brings files that no model needs: 'a.py'"),
        ({"normalisation": {"mean": [1.0]}}, "normalisation: is for the mean and std of each"),
        ({"example_batch": lambda: TARGETS}, r"expected \(inputs, targets\), got int64 \[4\]"),
        (
            {"example_batch": lambda: batch_of(image=torch.zeros(4, 1, 2, 3))},
            r"expected image float32 \[batch,1,2,2\], found float32 \[4,1,2,3\]",
        ),
        (
            {"example_batch": lambda: batch_of(boxes=torch.zeros(4, 4, dtype=torch.float64))},
            r"expected boxes float32 \[batch,4\], found float64 \[4,4\]",
        ),
        (
            {"example_batch": lambda: (dict(reversed(batch_of()[0].items())), TARGETS)},
            "inputs boxes, image, but input_spec has image, boxes: names and order must agree",
        ),
        (
            {"example_batch": lambda: (batch_of()[0]["image"], TARGETS)},
            "example_batch: a batch has 1 inputs, but input_spec has image, boxes",
        ),
        (
            {"example_batch": lambda: (batch_of()[0], TARGETS + 3)},
            r"example_batch: label 3 in row 0 lies outside 0\.\.1",
        ),
        (
            {"example_batch": lambda: (batch_of()[0], TARGETS[:3])},
            "got 4 of image, 4 of boxes, 3 of targets",
        ),
        (
            {"samples": lambda split, limit: ({"image": np.zeros(2)}, np.zeros(2, int))},
            "samples: a batch has the inputs image, but input_spec has image, boxes",
        ),
    ],
)
def test_what_is_malformed_is_named_with_what_was_expected(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_source(source(**changes))


def test_a_tuple_of_inputs_or_one_is_a_batch_too() -> None:
    inputs, targets = batch_of()
    check_source(source(example_batch=lambda: (tuple(inputs.values()), targets)))
    images = torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    own = source(
        input_spec=IMAGES,
        example_batch=lambda: (images, targets),
        samples=lambda split, limit: ({"images": images.numpy()}, targets.numpy()),
        normalisation={"mean": [0.5] * 3, "std": [0.5] * 3},
    )
    check_source(own)
    own.normalisation = {"mean": [0.5], "std": [0.5]}
    with pytest.raises(ValueError, match="normalisation: is for the mean and std of each channel"):
        check_source(own)


def test_a_fault_of_its_own_keeps_its_trace() -> None:
    class Broken(SimpleNamespace):
        @property
        def fingerprint(self) -> str:
            raise AttributeError("a fault of its own")

    parts = vars(source())
    del parts["fingerprint"]
    with pytest.raises(AttributeError, match="a fault of its own"):
        check_source(Broken(**parts))


def test_ours_have_all() -> None:
    data = Digits()
    data.setup()
    check_source(data)
