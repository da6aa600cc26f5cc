"""Building the deployable module, and refusing weights that do not fit it."""

import copy
import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.deployed import (
    DeployedImages,
    check_weights,
    deploy,
    load_deployed,
    network_class,
    resolve_class,
)
from lightning_modules.networks.small_cnn import SmallCNN

ARGUMENTS = {"in_channels": 1, "image_size": (8, 8), "num_classes": 3, "width": 4}


def checkpoint_of(module: nn.Module, **changes) -> dict:
    description = {
        "format": 2,
        "network": {"name": "small_cnn", "arguments": ARGUMENTS},
        "class_names": ["a", "b", "c"],
        "input_spec": {"inputs": []},
        "preprocessing": {"kind": "image"},
        "files": {},
        "config": {},
        "normalisation": {"mean": [0.4], "std": [0.2]},
    }
    state = {f"model.{name}": value for name, value in module.state_dict().items()}
    return {"description": description | changes, "state_dict": state}


@pytest.fixture
def module() -> DeployedImages:
    return DeployedImages(SmallCNN(**ARGUMENTS), [0.4], [0.2]).eval()


def test_normalisation_is_the_usual_one(module: DeployedImages) -> None:
    images = torch.randint(256, (2, 1, 8, 8), dtype=torch.uint8)
    expected = module.network((images / 255 - 0.4) / 0.2)
    torch.testing.assert_close(module(images), expected, rtol=1e-4, atol=1e-5)


def test_double_precision_stays_double(module: DeployedImages) -> None:
    assert module.double()(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).dtype == torch.float64


def test_round_trip_through_a_file(module: DeployedImages, tmp_path: Path) -> None:
    torch.save(checkpoint_of(module), tmp_path / "a.ckpt")
    loaded = load_deployed(read_checkpoint(tmp_path / "a.ckpt"))
    images = torch.randint(256, (2, 1, 8, 8), dtype=torch.uint8)
    assert torch.equal(loaded(images), module(images))
    assert not loaded.training


def test_weights_of_another_network_are_one_message(module: DeployedImages) -> None:
    checkpoint = checkpoint_of(module)
    del checkpoint["state_dict"]["model.network.head.bias"]
    checkpoint["state_dict"]["model.network.extra"] = torch.zeros(1)
    checkpoint["state_dict"]["model.network.head.weight"] = torch.zeros(5, 128)
    message = (
        r"do not fit network 'small_cnn': missing network.head.bias; unexpected network.extra; "
        r"network.head.weight has shape \[5, 128\] instead of \[3, 128\]"
    )
    with pytest.raises(ValueError, match=message):
        load_deployed(checkpoint)


def test_inputs_without_a_normalisation_are_handed_on_by_their_names() -> None:
    network = torch.nn.Bilinear(3, 4, 2)
    spec = {"inputs": [{"name": "len"}, {"name": "boxes"}]}
    deployed = deploy(network, None, spec)
    assert list(inspect.signature(deployed.forward).parameters) == ["len", "boxes"]
    assert list(deployed.state_dict()) == ["network.weight", "network.bias"]
    inputs = torch.rand(5, 3), torch.rand(5, 4)
    for same in (deployed, copy.deepcopy(deployed)):
        assert torch.equal(same(*inputs), network(*inputs))


def test_images_are_normalised_and_other_inputs_handed_on() -> None:
    class Sum(nn.Module):
        def forward(self, boxes: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
            return images.sum((2, 3)) + boxes

    spec = {"inputs": [{"name": "boxes"}, {"name": "images"}]}
    deployed = deploy(Sum(), {"mean": [0.5, 0.2], "std": [0.1, 0.4]}, spec)
    assert list(inspect.signature(deployed.forward).parameters) == ["boxes", "images"]
    images = torch.randint(256, (3, 2, 4, 4), dtype=torch.uint8)
    alone = DeployedImages(nn.Identity(), [0.5, 0.2], [0.1, 0.4])
    assert sorted(deployed.state_dict()) == sorted(alone.state_dict()) == ["mean", "std"]
    boxes = torch.tensor([[3.0, 4], [5, 6], [7, 8]])
    for same in (deployed, copy.deepcopy(deployed)):
        assert torch.equal(same(boxes, images), alone(images).sum((2, 3)) + boxes)
    assert deployed.double()(boxes, images).dtype == torch.float64


def test_a_weight_that_is_no_tensor_is_named(module: DeployedImages) -> None:
    checkpoint = checkpoint_of(module)
    checkpoint["state_dict"]["model.mean"] = [1.0]
    with pytest.raises(ValueError, match="do not fit network 'small_cnn': mean is no tensor"):
        load_deployed(checkpoint)


def test_a_network_may_keep_other_values_than_tensors() -> None:
    class Remembers(nn.Linear):
        seen = 0

        def get_extra_state(self) -> int:
            return self.seen

        def set_extra_state(self, state: int) -> None:
            self.seen = state

    check_weights(Remembers(2, 2), {**Remembers(2, 2).state_dict(), "_extra_state": 5}, "mine")
    with pytest.raises(ValueError, match="bias is no tensor"):
        check_weights(Remembers(2, 2), {**Remembers(2, 2).state_dict(), "bias": 5}, "mine")


def test_class_paths_stay_inside_the_project() -> None:
    with pytest.raises(ValueError, match="--allow_external_code"):
        resolve_class("collections.OrderedDict")
    assert resolve_class("collections.OrderedDict", allow_external_code=True)
    with pytest.raises(ValueError, match="cannot import"):
        resolve_class("lightning_modules.networks.small_cnn.NoSuchNetwork")
    with pytest.raises(ValueError, match="is not a class"):
        resolve_class("lightning_modules.networks.small_cnn.conv_stage")
    with pytest.raises(ValueError, match=r"is not a torch\.nn\.Module"):
        network_class("lightning_modules.optimizers.FALLBACK_LR")


def test_too_small_images_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 4x4 pixels; got 3x9"):
        SmallCNN(1, (3, 9), 2)
