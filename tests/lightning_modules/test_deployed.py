"""Building the deployable module, and refusing checkpoints that are not ours."""

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lightning_modules.deployed import (
    DeployedImages,
    check_weights,
    deploy,
    load_deployed,
    network_class,
    read_checkpoint,
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


class Malicious:
    def __reduce__(self):
        return (print, ("this would have run",))


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", pickle.dumps(Malicious())])
def test_other_files_are_refused(tmp_path: Path, content: bytes, capsys) -> None:
    (tmp_path / "a.ckpt").write_bytes(content)
    with pytest.raises(ValueError, match="is not a checkpoint of this project"):
        read_checkpoint(tmp_path / "a.ckpt")
    assert not capsys.readouterr().out


def test_a_truncated_checkpoint_is_refused(module: DeployedImages, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save(checkpoint_of(module), path)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="is not a checkpoint|cannot be read"):
        read_checkpoint(path)


def test_a_checkpoint_of_the_first_format_is_read(module: DeployedImages, tmp_path: Path) -> None:
    torch.save(checkpoint_of(module, format=1, kind="image"), tmp_path / "a.ckpt")
    images = torch.randint(256, (2, 1, 8, 8), dtype=torch.uint8)
    assert torch.equal(load_deployed(read_checkpoint(tmp_path / "a.ckpt"))(images), module(images))


def test_inputs_without_a_normalisation_are_handed_on_by_their_names() -> None:
    network = torch.nn.Bilinear(3, 4, 2)
    spec = {"inputs": [{"name": "len"}, {"name": "boxes"}]}
    deployed = deploy(network, None, spec)
    assert list(inspect.signature(deployed.forward).parameters) == ["len", "boxes"]
    assert list(deployed.state_dict()) == ["network.weight", "network.bias"]
    inputs = torch.rand(5, 3), torch.rand(5, 4)
    for same in (deployed, copy.deepcopy(deployed)):
        assert torch.equal(same(*inputs), network(*inputs))


def test_code_inside_a_checkpoint_does_not_run(tmp_path: Path, capsys) -> None:
    torch.save({"description": Malicious()}, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match="refused, since loading those can run code"):
        read_checkpoint(tmp_path / "a.ckpt")
    assert not capsys.readouterr().out


def test_a_foreign_or_newer_checkpoint_is_refused(module: DeployedImages, tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match="was not written by this project"):
        read_checkpoint(tmp_path / "a.ckpt")
    torch.save(checkpoint_of(module, format=3), tmp_path / "b.ckpt")
    with pytest.raises(ValueError, match="has description format 3, this version reads 1 to 2"):
        read_checkpoint(tmp_path / "b.ckpt")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("state_dict",), 5, "another type is state_dict"),
        (("description", "network"), "x", "another type is description.network"),
        (
            ("description", "network", "arguments"),
            [],
            "another type is description.network.arguments",
        ),
        (("description", "class_names"), 5, "another type is description.class_names"),
        (("description", "files"), 5, "another type is description.files"),
        (("description", "preprocessing"), {}, "another type is description.preprocessing.kind"),
    ],
)
def test_a_checkpoint_of_another_form_is_refused(
    module: DeployedImages, tmp_path: Path, place: tuple[str, ...], value: object, message: str
) -> None:
    checkpoint: Any = checkpoint_of(module)
    inner = checkpoint
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    torch.save(checkpoint, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match=message):
        read_checkpoint(tmp_path / "a.ckpt")


@pytest.mark.parametrize("content", [[1, 2], torch.zeros(2), {"description": 5}])
def test_what_holds_no_description_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match="holds no model description"):
        read_checkpoint(tmp_path / "a.ckpt")


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


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        read_checkpoint(tmp_path / "none.ckpt")


def test_class_paths_stay_inside_the_project() -> None:
    with pytest.raises(ValueError, match="--allow_external_code"):
        resolve_class("collections.OrderedDict")
    assert resolve_class("collections.OrderedDict", allow_external_code=True)
    with pytest.raises(ValueError, match="cannot import"):
        resolve_class("lightning_modules.networks.small_cnn.NoSuchNetwork")
    with pytest.raises(ValueError, match="is not a class"):
        resolve_class("lightning_modules.networks.small_cnn.conv_stage")
    with pytest.raises(ValueError, match=r"is not a torch\.nn\.Module"):
        network_class("lightning_modules.metrics.Report")


def test_too_small_images_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 4x4 pixels; got 3x9"):
        SmallCNN(1, (3, 9), 2)
