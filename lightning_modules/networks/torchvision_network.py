"""Any classification network of torchvision by name, with its own number of classes.

float32 [N,C,H,W] (normalised pixels, C = 1 or 3) -> logits float32 [N,K]. Pretrained weights fill
all layers but the last, which is new wherever the number of classes differs.

N batch, C channels, H height, W width, K classes.
"""

import difflib
import pickle
import urllib.error
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

EXTRA_OUTPUTS = ("googlenet", "inception_v3")  # with auxiliary heads, which are left out here
COLOURS = 3
USUAL_SIZES = (8, 14, 16, 28, 32, 48, 56, 64, 96, 112, 128, 160, 192, 224, 256, 299, 384, 512)


class TorchvisionNetwork(nn.Module):
    """A torchvision network.

    Args:
        in_channels: Image channels C; grey images are repeated to three channels.
        image_size: (H, W); whether the architecture can take it is tried.
        num_classes: Number of classes K.
        architecture: Name in torchvision, for example resnet50.
        weights: Where training starts from: torchvision's name of pretrained weights (such as
            ResNet50_Weights.IMAGENET1K_V2) or a file of them; None starts at random.

    Raises:
        ValueError: No such architecture, an image it cannot take, weights that do not fit.
    """

    def __init__(
        self,
        in_channels: int,
        image_size: tuple[int, int],
        num_classes: int,
        architecture: str = "resnet18",
        weights: str | None = None,
    ) -> None:
        super().__init__()
        if in_channels not in (1, COLOURS):
            raise ValueError(f"torchvision networks take 1 or 3 channels, got {in_channels}")
        check_architecture(architecture)
        check_image_size(architecture, num_classes, image_size)
        self.layers = build(architecture, num_classes, image_size)
        if weights is not None:
            fill(self.layers, find_weights(architecture, weights), weights)

    @staticmethod
    def data_defaults(arguments: Mapping[str, Any]) -> dict[str, Any]:
        """torchvision's weights also say how to prepare pictures; a file of them does not."""
        weights = arguments.get("weights") or ""
        return {"weights": weights} if "_Weights." in weights else {}

    def forward(self, images: Tensor) -> Tensor:
        """float32 [N,C,H,W] -> logits float32 [N,K]."""
        return self.layers(images.expand(-1, COLOURS, -1, -1))  # [N,3,H,W] -> [N,K]


def check_architecture(architecture: str) -> None:
    """Raises ValueError if torchvision has no such classification network."""
    from torchvision import models  # loads slowly, and only this file needs it

    names = models.list_models(module=models)
    if architecture not in names:
        near = difflib.get_close_matches(architecture, names, n=1)
        raise ValueError(
            f"torchvision has no classification network {architecture!r}"
            + (f"; did you mean {near[0]}?" if near else "")
        )


def build(architecture: str, num_classes: int, image_size: tuple[int, int]) -> nn.Module:
    """The network with random weights."""
    from torchvision import models

    options: dict[str, Any] = {"num_classes": num_classes}
    if architecture in EXTRA_OUTPUTS:
        options |= {"aux_logits": False, "init_weights": True}
    if architecture.startswith("vit_"):  # its position embedding has a fixed size
        options["image_size"] = image_size[0]
    if architecture.startswith("maxvit_"):  # likewise
        options["input_size"] = image_size
    return models.get_model(architecture, weights=None, **options)


def check_image_size(architecture: str, num_classes: int, image_size: tuple[int, int]) -> None:
    """Raises ValueError if the architecture cannot take it, with the sizes that it can."""
    problem = refusal(architecture, num_classes, image_size)
    if problem is None:
        return
    height, width = image_size
    below = [size for size in USUAL_SIZES if size < height][::-1]
    above = [size for size in USUAL_SIZES if size > height]
    fitting = [
        next((s for s in sizes if refusal(architecture, num_classes, (s, s)) is None), None)
        for sizes in (below, above)
    ]
    named = " or ".join(str(size) for size in fitting if size)
    raise ValueError(
        f"{architecture} cannot take images of {height}x{width} pixels ({problem}); of square "
        f"ones it takes {named or 'no usual size'}: --data image_folder makes them so by "
        "--data.image_size; data of a fixed size needs another --model.architecture, such as "
        "resnet18"
    )


def refusal(architecture: str, num_classes: int, image_size: tuple[int, int]) -> str | None:
    """Sends images without content through a network without weights, for the shapes alone."""
    try:
        with torch.device("meta"):
            probe = build(architecture, num_classes, image_size).eval()
        logits = probe(torch.empty(2, COLOURS, *image_size, device="meta"))
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    assert logits.shape == (2, num_classes)
    return None


def find_weights(architecture: str, weights: str) -> Mapping[str, Tensor]:
    """Reads a file of weights, or torchvision's by name (downloaded once, checksum verified).

    Raises:
        ValueError: Unknown or for another architecture, unreadable, or not to be had offline.
    """
    from torchvision import models

    if Path(weights).is_file():
        try:
            return dict(torch.load(weights, map_location="cpu", weights_only=True))
        except (pickle.UnpicklingError, RuntimeError, EOFError, TypeError, ValueError) as error:
            raise ValueError(f"--model.weights {weights} is no file of weights: {error}") from error
    known = {str(entry): entry for entry in models.get_model_weights(architecture)}
    try:
        chosen = models.get_weight(weights)
    except (ValueError, AttributeError, KeyError):
        chosen = None
    if str(chosen) not in known:
        raise ValueError(
            f"--model.weights {weights!r} is neither a file nor weights of {architecture}, "
            f"which has {', '.join(known) or 'none'}"
        )
    entry = known[str(chosen)]
    try:
        return entry.get_state_dict(progress=False, check_hash=True, weights_only=True)
    except (urllib.error.URLError, OSError, RuntimeError) as error:
        place = Path(torch.hub.get_dir()) / "checkpoints" / Path(entry.url).name
        raise ValueError(
            f"the weights {weights} cannot be downloaded ({error}); put the file at {place}, or "
            "give its path as --model.weights"
        ) from error


def fill(layers: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    """Loads weights into all layers; only the last may not fit, and then stays new."""
    own = layers.state_dict()
    head = last_layer(layers)
    fitting = {
        key: value for key, value in weights.items() if key in own and value.shape == own[key].shape
    }
    lacking = [key for key in own if key not in fitting and not key.startswith(f"{head}.")]
    if lacking:
        raise ValueError(
            f"the weights {name} do not fit: {len(lacking)} entries such as {lacking[0]!r} are "
            "missing or have another shape"
        )
    layers.load_state_dict(fitting, strict=False)


def last_layer(layers: nn.Module) -> str:
    """Name of the last layer with parameters of its own: the one that makes the logits."""
    parts = layers.named_modules()
    return [name for name, part in parts if list(part.parameters(recurse=False))][-1]
