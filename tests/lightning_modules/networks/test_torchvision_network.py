import pytest
import torch
from torchvision import models

from lightning_modules.deployed import load_deployed
from lightning_modules.networks.torchvision_network import TorchvisionNetwork, last_layer


@pytest.mark.parametrize(
    ("architecture", "head"),
    [
        ("resnet18", "fc"),
        ("mobilenet_v3_small", "classifier.3"),
        ("squeezenet1_1", "classifier.1"),
        ("shufflenet_v2_x0_5", "fc"),
        ("mnasnet0_5", "classifier.1"),
    ],
)
def test_own_class_count_and_last_layer(architecture, head):
    network = TorchvisionNetwork(3, (64, 64), 7, architecture).eval()
    assert network(torch.zeros(2, 3, 64, 64)).shape == (2, 7)
    assert last_layer(network.layers) == head


def test_grey_images_are_repeated():
    network = TorchvisionNetwork(1, (32, 32), 3).eval()
    images = torch.randn(2, 1, 32, 32)
    assert torch.equal(network(images), network.layers(images.expand(-1, 3, -1, -1)))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"architecture": "resnet81"}, "no classification network 'resnet81'; did you mean resnet"),
        ({"architecture": "fcn_resnet50"}, "no classification network 'fcn_resnet50'"),
        ({"architecture": "alexnet"}, "alexnet cannot take images of 32x32 pixels"),
        ({"architecture": "vit_b_16", "image_size": (30, 30)}, "vit_b_16 cannot take .* 30x30"),
        (
            {"architecture": "vit_b_16", "image_size": (28, 28)},
            "of square ones it takes 16 or 32: .* --data.image_size; .* such as resnet18",
        ),
        ({"architecture": "alexnet", "image_size": (28, 28)}, "of square ones it takes 64: "),
        ({"architecture": "maxvit_t", "image_size": (300, 300)}, "of square ones it takes 224: "),
        ({"in_channels": 4}, "take 1 or 3 channels, got 4"),
        ({"weights": "ResNet18_Weights.V9"}, "has ResNet18_Weights.IMAGENET1K_V1"),
        ({"weights": "ResNet50_Weights.DEFAULT"}, "neither a file nor weights of resnet18"),
    ],
)
def test_what_does_not_fit_is_said(arguments, match):
    with pytest.raises(ValueError, match=match):
        TorchvisionNetwork(
            **{"in_channels": 3, "image_size": (32, 32), "num_classes": 3} | arguments
        )


@pytest.fixture
def weights(tmp_path):
    """A file as torchvision publishes them: 1000 classes."""
    torch.manual_seed(1)
    state = models.resnet18(weights=None).state_dict()
    torch.save(state, tmp_path / "resnet18.pth")
    return tmp_path / "resnet18.pth", state


def test_pretrained_weights_fill_all_but_a_new_last_layer(weights):
    path, state = weights
    network = TorchvisionNetwork(3, (32, 32), 5, weights=str(path))
    own = network.layers.state_dict()
    assert all(torch.equal(own[name], state[name]) for name in state if not name.startswith("fc."))
    assert own["fc.weight"].shape == (5, 512)
    same = TorchvisionNetwork(3, (32, 32), 1000, weights=str(path))
    assert torch.equal(same.layers.state_dict()["fc.weight"], state["fc.weight"])


def test_named_weights_are_taken_from_torchvision(weights, monkeypatch):
    path, state = weights
    asked = []

    def local(url: str, **options: object) -> dict[str, torch.Tensor]:
        asked.append((url, options))
        return state

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", local)
    network = TorchvisionNetwork(3, (32, 32), 5, weights="ResNet18_Weights.DEFAULT")
    assert torch.equal(network.layers.state_dict()["conv1.weight"], state["conv1.weight"])
    assert asked[0][1]["check_hash"] is True
    assert asked[0][1]["weights_only"] is True


def test_offline_the_message_says_where_to_put_the_file():
    with pytest.raises(ValueError, match=r"put the file at .*checkpoints/resnet18-\w+.pth, or"):
        TorchvisionNetwork(3, (32, 32), 5, weights="ResNet18_Weights.DEFAULT")


def test_weights_of_another_network_do_not_fit(weights):
    with pytest.raises(ValueError, match="do not fit: .* entries such as"):
        TorchvisionNetwork(3, (32, 32), 5, "resnet34", weights=str(weights[0]))


def test_a_checkpoint_needs_the_pretrained_weights_no_more(weights):
    """A fresh process rebuilds the network even if the file it started from is gone."""
    path, _ = weights
    arguments = {"in_channels": 3, "image_size": (32, 32), "num_classes": 5, "weights": str(path)}
    network = TorchvisionNetwork(**arguments)
    path.unlink()
    state = {f"model.network.{name}": value for name, value in network.state_dict().items()}
    normalisation = {"mean": [0.5] * 3, "std": [0.5] * 3}
    state["model.mean"] = state["model.std"] = torch.full((1, 3, 1, 1), 127.5)
    description = {
        "network": {"name": "torchvision", "arguments": arguments},
        "input_spec": {},
        "normalisation": normalisation,
    }
    rebuilt = load_deployed({"description": description, "state_dict": state})
    for name, value in network.state_dict().items():
        assert torch.equal(rebuilt.network.state_dict()[name], value)


@pytest.mark.parametrize("content", [b"", b"not weights", b"PK"])
def test_a_file_that_holds_no_weights(tmp_path, content):
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(ValueError, match="weights.pth is no file of weights"):
        TorchvisionNetwork(3, (32, 32), 5, weights=str(tmp_path / "weights.pth"))
