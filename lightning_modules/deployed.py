"""The deployable module: what trains, what a checkpoint holds and what is exported are this object.

Raw input goes in (uint8 pixels or token ids), logits come out; normalisation lies inside. Knows
checkpoints and networks, not Lightning, so that a file can be exported or predicted with in a
process that starts fast.

N batch, C channels, H height, W width, L tokens, K classes.
"""

import importlib
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from lightning_modules.network_signature import STARTS, build_network
from lightning_modules.networks import NETWORKS
from preprocessing.reader import check_preprocessing

DESCRIPTION_FORMAT = 2
READABLE_FORMATS = (1, 2)  # the first says "kind" beside the preprocessing's own, which is not read
STATE_PREFIX = "model."
PROJECT_PACKAGES = ("lightning_modules", "datamodules", "callbacks")
# what a checkpoint must hold at least, whoever wrote it
CONTENT: dict[str, Any] = {
    "state_dict": dict,
    "description": {
        "network": {"name": str, "arguments": dict},
        "class_names": list,
        "input_spec": {"inputs": list},
        "preprocessing": {"kind": str},
        "files": dict | None,
        "normalisation": dict | None,
        "config": dict,
    },
}


class DeployedImages(nn.Module):
    """Normalisation and an image network.

    Args:
        network: float [N,C,H,W] -> logits [N,K].
        mean: Mean of each channel, for pixel values in 0..1.
        std: Standard deviation of each channel, likewise.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        # in pixel units (0..255), so that no division by 255 is needed
        self.register_buffer(
            "mean", 255 * torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1)
        )
        self.register_buffer("std", 255 * torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """uint8 [N,C,H,W] -> logits [N,K]."""
        return self.network((images.to(self.mean.dtype) - self.mean) / self.std)


def passing_on(network: nn.Module, names: Sequence[str]) -> nn.Module:
    """A module whose forward takes inputs of these names and hands them to `network` as they are.

    torch.fx writes that forward, so that it can be traced, scripted and exported like any other.
    """
    graph = fx.Graph()
    inputs = tuple(graph.placeholder(name, Tensor) for name in names)
    graph.output(graph.call_module("network", inputs))
    return fx.GraphModule({"network": network}, graph, "DeployedInputs")


def deploy(
    network: nn.Module, normalisation: Mapping[str, Any] | None, input_spec: Mapping[str, Any]
) -> nn.Module:
    """Puts the input side around a network: normalisation where data have one, else nothing."""
    if normalisation:
        return DeployedImages(network, normalisation["mean"], normalisation["std"])
    return passing_on(network, [item["name"] for item in input_spec["inputs"]])


def resolve(path: str, allow_external_code: bool = False) -> Any:
    """Imports what stands at a dotted path, by default only from this project's packages.

    Raises:
        ValueError: The path leads outside the project or to nothing.
    """
    module_name, _, name = path.rpartition(".")
    if module_name.split(".")[0] not in PROJECT_PACKAGES and not allow_external_code:
        raise ValueError(
            f"{path!r} lies outside this project's packages ({', '.join(PROJECT_PACKAGES)}); "
            "to run code from elsewhere add --allow_external_code"
        )
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"cannot import {path!r}: {error}") from error


def resolve_class(path: str, allow_external_code: bool = False) -> type:
    """Likewise a class.

    Raises:
        ValueError: It is none, or as for `resolve`.
    """
    found = resolve(path, allow_external_code)
    if not isinstance(found, type):
        raise ValueError(f"{path!r} is not a class")
    return found


def network_class(name: str, allow_external_code: bool = False) -> Callable[..., nn.Module]:
    """The class, or function that builds a module, behind a short name or an import path."""
    found = resolve(NETWORKS.get(name, name), allow_external_code)
    is_class = isinstance(found, type)
    if not (issubclass(found, nn.Module) if is_class else callable(found)):
        raise ValueError(
            f"network {name!r} is not a torch.nn.Module, nor a function that builds one"
        )
    return found


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Reads a checkpoint of this project; only primitives and tensors are accepted.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged, holds code, or was not written by this project.
    """
    path = Path(path)
    if not path.is_file():
        inside = [*path.glob("*.ckpt"), *path.glob("checkpoints/*.ckpt")]  # of a folder
        hint = f": it is a folder; did you mean {max(inside)}?" if inside else ""
        raise FileNotFoundError(f"no checkpoint at {path}{hint}")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a checkpoint of this project, or it is damaged")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} is damaged, or holds objects other than tensors and plain values (refused, "
            "since loading those can run code)"
        ) from error
    except Exception as error:  # damaged bytes can fail anywhere in the reader
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} cannot be read as a checkpoint: {reason}") from error
    description = checkpoint.get("description") if isinstance(checkpoint, dict) else None
    if not isinstance(description, dict):
        raise ValueError(f"{path} holds no model description: it was not written by this project")
    found = description.get("format")
    if found not in READABLE_FORMATS:
        raise ValueError(
            f"{path} has description format {found}, this version reads 1 to {DESCRIPTION_FORMAT}"
        )
    if wrong := misplaced(checkpoint, CONTENT):
        raise ValueError(
            f"{path} was not written by this project: missing or of another type is "
            f"{', '.join(wrong)}"
        )
    try:
        check_preprocessing(description["preprocessing"], description["files"] or {})
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error
    return checkpoint


def misplaced(content: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Names of what is missing or of another type, with dots."""
    found = []
    for name, form in expected.items():
        value: Any = content.get(name)
        is_right = isinstance(value, dict if isinstance(form, dict) else form)
        if name not in content or not is_right:
            found.append(name)
        elif isinstance(form, dict):
            found += [f"{name}.{inner}" for inner in misplaced(value, form)]
    return found


def load_deployed(checkpoint: Mapping[str, Any], allow_external_code: bool = False) -> nn.Module:
    """Builds the checkpoint's module afresh: float32, on the CPU, in evaluation mode.

    Raises:
        ValueError: Weights and network do not fit; the first differing names are given.
    """
    description = checkpoint["description"]
    network = network_class(description["network"]["name"], allow_external_code)
    arguments = dict(description["network"]["arguments"])
    arguments |= {name: value for name, value in STARTS.items() if name in arguments}
    built = build_network(network, arguments)
    module = deploy(built, description["normalisation"], description["input_spec"])
    weights = {
        name.removeprefix(STATE_PREFIX): value
        for name, value in checkpoint["state_dict"].items()
        if name.startswith(STATE_PREFIX)
    }
    check_weights(module, weights, description["network"]["name"])
    module.load_state_dict(weights)
    return module.float().eval()


def check_weights(module: nn.Module, weights: Mapping[str, Any], network_name: str) -> None:
    """Says in one readable message why weights do not fit, before torch does in many.

    Raises:
        ValueError: A name is missing or unexpected, is no tensor, or a shape differs.
    """
    expected = module.state_dict()
    problems = [f"missing {name}" for name in expected if name not in weights]
    problems += [f"unexpected {name}" for name in weights if name not in expected]
    problems += [  # a network may keep other values by get_extra_state
        f"{name} is no tensor"
        for name, weight in weights.items()
        if isinstance(expected.get(name), Tensor) and not isinstance(weight, Tensor)
    ]
    problems += [
        f"{name} has shape {list(weights[name].shape)} instead of {list(expected[name].shape)}"
        for name in expected
        if isinstance(weights.get(name), Tensor)
        and isinstance(expected[name], Tensor)
        and weights[name].shape != expected[name].shape
    ]
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise ValueError(
            f"the checkpoint's weights do not fit network {network_name!r}: "
            f"{'; '.join(problems[:3])}{more}"
        )
