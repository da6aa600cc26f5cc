"""What networks ask for, under whatever names; classes and functions alike."""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lightning_modules.network_signature import (
    NAMES,
    build_network,
    names_from_data,
    network_arguments,
    signature_of,
    typed_arguments,
)
from lightning_modules.networks.small_cnn import SmallCNN

GREY = {"num_classes": 4, "in_channels": 1, "image_size": (8, 8)}
COLOUR = GREY | {"in_channels": 3}


class Size(Enum):
    SMALL = 1


def of_timm(num_classes: int = 1000, in_chans: int = 3, img_size: int = 224) -> nn.Module:
    return nn.Linear(in_chans * img_size**2, num_classes)


def of_transformers(num_labels, num_channels, input_size: tuple[int, int]) -> nn.Module:  # noqa: ANN001
    return nn.Linear(num_channels * input_size[0], num_labels)


def untyped(n_classes, image_size=32):  # noqa: ANN001, ANN201
    return nn.Linear(image_size, n_classes)


def handing_on(depth: int = 2, **kwargs: Any) -> nn.Module:
    return of_timm(**kwargs)


def hidden(name: str = "x", **kwargs: Any) -> nn.Module:
    return of_timm(**dict(kwargs))


def both(in_channels: int, num_channels: int, num_classes: int) -> nn.Module:
    return nn.Linear(in_channels, num_channels)


@pytest.mark.parametrize(
    ("network", "data", "expected"),
    [
        (of_timm, GREY, {"num_classes": 4, "in_chans": 1, "img_size": 8}),
        (of_transformers, GREY, {"num_labels": 4, "num_channels": 1, "input_size": (8, 8)}),
        (untyped, GREY, {"n_classes": 4, "image_size": 8}),
        (handing_on, GREY, {"num_classes": 4, "in_chans": 1, "img_size": 8}),
        (hidden, GREY, {"num_classes": 4, "in_chans": 1}),
        (hidden, COLOUR, {"num_classes": 4}),
        (SmallCNN, GREY, GREY),
    ],
)
def test_what_the_data_determines_goes_by_the_networks_own_names(
    network: Callable[..., nn.Module], data: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert network_arguments(network, data, {}) == expected


def test_only_the_first_of_two_names_is_the_datas() -> None:
    found = network_arguments(both, GREY, {"num_channels": 16})
    assert found == {"in_channels": 1, "num_channels": 16, "num_classes": 4}
    assert "num_channels" not in names_from_data(signature_of(both), NAMES)


def test_names_of_images_stay_flags_of_a_network_for_texts() -> None:
    signature = signature_of(of_timm)
    assert {"in_chans", "img_size"} <= names_from_data(signature, NAMES)
    assert not {"in_chans", "img_size"} & names_from_data(signature, ["num_classes", "vocab_size"])


def test_names_of_the_datas_own_are_no_flags_either() -> None:
    def of_rows(columns: int, num_classes: int, depth: int = 1) -> nn.Module:
        return nn.Linear(columns, num_classes)

    skipped = names_from_data(signature_of(of_rows), ["columns", "num_classes"])
    assert skipped >= {"columns", "num_classes"}
    assert "depth" not in skipped


def test_a_side_alone_means_square_images() -> None:
    with pytest.raises(ValueError, match="img_size is one whole number.* these are 8x9"):
        network_arguments(of_timm, GREY | {"image_size": (8, 9)}, {})


def test_torchvisions_functions_show_what_their_kwargs_take() -> None:
    from torchvision import models

    for function in (models.resnet18, models.vit_b_16):
        signature = signature_of(function)
        assert not signature.is_open
        assert "num_classes" in signature.arguments
    assert network_arguments(models.vit_b_16, COLOUR, {}) == {"num_classes": 4, "image_size": 8}
    built = build_network(models.resnet18, network_arguments(models.resnet18, COLOUR, {}))
    assert built(torch.zeros(2, 3, 32, 32)).shape == (2, 4)


def test_a_network_for_other_data_is_refused() -> None:
    with pytest.raises(ValueError, match="SmallCNN needs in_channels, image_size, but this data"):
        network_arguments(SmallCNN, {"num_classes": 2, "vocab_size": 10}, {})


def test_what_builds_no_module_is_refused() -> None:
    def number(num_classes: int) -> int:
        return num_classes

    with pytest.raises(ValueError, match=r"number gives int, expected a torch\.nn\.Module"):
        build_network(number, {"num_classes": 2})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hidden cannot be built: .* 'depth'"):
        build_network(hidden, {"num_classes": 2, "depth": 3})
    with pytest.raises(TypeError):  # a fault in the user's own code keeps its trace
        build_network(of_timm, {"depth": 3})


def test_plain_values_become_what_the_signature_says() -> None:
    def network(size: Size | None, path: Path, sides: tuple[int, int], name: str) -> nn.Module:
        return nn.Identity()

    plain = {"size": "SMALL", "path": "a", "sides": [1, 2], "name": "b"}
    typed = {"size": Size.SMALL, "path": Path("a"), "sides": (1, 2), "name": "b"}
    assert typed_arguments(network, plain) == typed
    assert typed_arguments(network, {"size": None}) == {"size": None}


def test_layers_without_a_size_are_refused() -> None:
    def lazy() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3))

    with pytest.raises(ValueError, match=r"lazy has layers .* decides \(1\.weight\), which a"):
        build_network(lazy, {})
