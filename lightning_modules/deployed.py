"""The deployable module: what trains, what a checkpoint holds and what is exported are this object.

Raw input goes in (uint8 pixels or token ids), logits come out; normalisation lies inside. Knows
networks, not Lightning, so that a checkpoint can be exported or predicted with in a process that
starts fast.

N batch, C channels, H height, W width, L tokens, K classes.
"""

import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from lightning_modules.checkpoint import STATE_PREFIX
from lightning_modules.network_signature import STARTS, build_network
from lightning_modules.networks import NETWORKS

PROJECT_PACKAGES = ("lightning_modules", "datamodules", "callbacks", "ops")


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


def normalising(
    network: nn.Module, names: Sequence[str], mean: Sequence[float], std: Sequence[float]
) -> nn.Module:
    """`passing_on`, but the input `images` is normalised first, as `DeployedImages` does it."""
    alone = DeployedImages(network, mean, std)
    graph = fx.Graph()
    inputs = {name: graph.placeholder(name, Tensor) for name in names}
    of_mean, of_std = graph.get_attr("mean"), graph.get_attr("std")
    pixels = graph.call_method("to", (inputs["images"], of_mean))  # to its dtype
    centred = graph.call_function(operator.sub, (pixels, of_mean))
    inputs["images"] = graph.call_function(operator.truediv, (centred, of_std))
    graph.output(graph.call_module("network", tuple(inputs.values())))
    parts = {"network": network, "mean": alone.mean, "std": alone.std}
    return fx.GraphModule(parts, graph, "DeployedInputs")


def deploy(
    network: nn.Module, normalisation: Mapping[str, Any] | None, input_spec: Mapping[str, Any]
) -> nn.Module:
    """Puts the input side around a network: normalisation where data have one, else nothing."""
    names = [item["name"] for item in input_spec.get("inputs", ())]
    if not normalisation:
        return passing_on(network, names)
    statistics = normalisation["mean"], normalisation["std"]
    if len(names) < 2:
        return DeployedImages(network, *statistics)
    return normalising(network, names, *statistics)


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
    for name, wanted in expected.items():
        found = weights.get(name, wanted)
        if not isinstance(wanted, Tensor):  # a network may keep other values by get_extra_state
            continue
        if not isinstance(found, Tensor):
            problems.append(f"{name} is no tensor")
        elif found.shape != wanted.shape:
            shapes = f"{list(found.shape)} instead of {list(wanted.shape)}"
            problems.append(f"{name} has shape {shapes}")
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise ValueError(
            f"the checkpoint's weights do not fit network {network_name!r}: "
            f"{'; '.join(problems[:3])}{more}"
        )
