"""What a network's constructor, or a function that builds one, asks for and is given.

What the data determines goes in under the names that networks use for it; all else is a flag.
"""

import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from jsonargparse import ArgumentParser
from torch import nn
from torch.nn.parameter import is_lazy

# what the data determines, under the names that networks have for it; the first that is there
NAMES: dict[str, tuple[str, ...]] = {
    "num_classes": ("num_classes", "n_classes", "num_labels"),
    "in_channels": ("in_channels", "in_chans", "num_channels"),
    "image_size": ("image_size", "img_size", "input_size"),
    "vocab_size": ("vocab_size",),
    "max_length": ("max_length",),
}
USUAL_CHANNELS = 3
# where training starts from: the weights of a checkpoint take its place
STARTS = {"weights": None, "pretrained": False}


class Argument(NamedTuple):
    """What is known of one argument."""

    hint: Any
    is_needed: bool
    default: Any


class Signature(NamedTuple):
    """The arguments of a network by name."""

    arguments: dict[str, Argument]
    is_open: bool  # takes others, too, and nothing says which


def signature_of(network: Callable[..., nn.Module]) -> Signature:
    """Also what `**kwargs` lead to, where the source code shows that."""
    hints, empty = type_hints(network), inspect.Parameter.empty
    arguments, takes_others = {}, False
    for name, parameter in inspect.signature(network).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_others = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            default = parameter.default
            arguments[name] = Argument(hints.get(name), default is empty, default)
    further = arguments_behind(network) if takes_others else {}
    others = {name: found for name, found in further.items() if name not in arguments}
    return Signature(arguments | others, takes_others and not others)


def arguments_behind(network: Callable[..., nn.Module]) -> dict[str, Argument]:
    """All arguments that jsonargparse finds, which reads the code that `**kwargs` are handed to."""
    parser = ArgumentParser(add_help=False)
    add = parser.add_class_arguments if is_class(network) else parser.add_function_arguments
    add(network, as_positional=False, fail_untyped=False)
    return {
        action.dest: Argument(getattr(action, "_typehint", None), False, action.default)
        for action in parser._actions  # argparse has no public list of them
    }


def type_hints(network: Callable[..., nn.Module]) -> dict[str, Any]:
    """By name; none where one of them cannot be evaluated."""
    function = inspect.getattr_static(network, "__init__") if is_class(network) else network
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}


def names_from_data(signature: Signature, determined: Collection[str]) -> frozenset[str]:
    """The arguments that the data determines, by our names, and which therefore are no flags."""
    asked = (asked_as(name, signature) for name in determined)
    return frozenset([*NAMES, *filter(None, asked)])


def asked_as(name: str, signature: Signature) -> str | None:
    """The name under which a network asks for what the data determines."""
    return next((one for one in NAMES.get(name, (name,)) if one in signature.arguments), None)


def network_arguments(
    network: Callable[..., nn.Module],
    from_data: Mapping[str, object],
    from_user: Mapping[str, object],
) -> dict[str, Any]:
    """Joins what the data determines with what the user chose, as the constructor asks.

    Where nothing says what `**kwargs` may hold, they get what timm's functions take: num_classes,
    and in_chans unless images are in colour.

    Raises:
        ValueError: The network needs a value that this data does not provide.
    """
    signature = signature_of(network)
    arguments: dict[str, Any] = {}
    for name, value in from_data.items():
        asked = asked_as(name, signature)
        if asked is not None:
            argument = signature.arguments[asked]
            arguments[asked] = one_side(asked, value, argument) if name == "image_size" else value
        elif signature.is_open and name == "num_classes":
            arguments["num_classes"] = value
        elif signature.is_open and name == "in_channels" and value != USUAL_CHANNELS:
            arguments["in_chans"] = value
    arguments |= from_user
    needed = [name for name, argument in signature.arguments.items() if argument.is_needed]
    if missing := [name for name in needed if name not in arguments]:
        raise ValueError(
            f"network {label(network)} needs {', '.join(missing)}, but this data provides only "
            f"{', '.join(from_data)}; choose a network for this kind of data"
        )
    return arguments


def one_side(name: str, size: Any, argument: Argument) -> Any:
    """(H, W), or its one side where the network takes a whole number.

    Raises:
        ValueError: It takes one, and the image is not square.
    """
    alternatives = alternatives_of(argument.hint)
    takes_pairs = any(typing.get_origin(one) in (tuple, list) for one in alternatives)
    if takes_pairs or not (int in alternatives or type(argument.default) is int):
        return size
    height, width = size
    if height != width:
        raise ValueError(
            f"the network's {name} is one whole number, for square images, but these are "
            f"{height}x{width}; make them square (--data image_folder: --data.image_size)"
        )
    return height


def build_network(network: Callable[..., nn.Module], arguments: Mapping[str, Any]) -> nn.Module:
    """Builds it from plain values.

    Raises:
        ValueError: It takes no such arguments, or what comes is no module, or has no sizes yet.
    """
    try:
        built = network(**typed_arguments(network, arguments))
    except TypeError as error:
        if "unexpected keyword argument" in str(error) and signature_of(network).is_open:
            raise ValueError(
                f"network {label(network)} cannot be built: {error} (given were "
                f"{', '.join(arguments)}); a function with that signature of your own, which calls "
                "it, can leave it out"
            ) from error
        raise
    if not isinstance(built, nn.Module):
        raise ValueError(
            f"network {label(network)} gives {type(built).__name__}, expected a torch.nn.Module"
        )
    if lazy := [name for name, value in built.named_parameters() if is_lazy(value)]:
        raise ValueError(
            f"network {label(network)} has layers whose size only a batch decides ({lazy[0]}), "
            "which a checkpoint could not build again; compute it from in_channels, image_size "
            "or vocab_size"
        )
    return built


def typed_arguments(
    network: Callable[..., nn.Module], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Turns the plain values of a checkpoint back into what the constructor is annotated with."""
    hints = type_hints(network)
    typed = {}
    for name, value in arguments.items():
        for hint in alternatives_of(hints.get(name)):
            is_text = isinstance(hint, type) and isinstance(value, str)
            if is_text and issubclass(hint, Enum) and value in hint.__members__:
                value = hint[value]
            elif is_text and issubclass(hint, Path):
                value = Path(value)
        if typing.get_origin(hints.get(name)) is tuple:
            value = tuple(value)
        typed[name] = value
    return typed


def alternatives_of(hint: Any) -> tuple[Any, ...]:
    """The types that a union or an annotated type is made of."""
    is_made = typing.get_origin(hint) in (typing.Union, types.UnionType, typing.Annotated)
    return typing.get_args(hint) if is_made else (hint,)


def is_class(network: Callable[..., nn.Module]) -> bool:
    return isinstance(network, type)


def label(network: Callable[..., nn.Module]) -> str:
    return getattr(network, "__name__", repr(network))
