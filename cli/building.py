"""From a configuration to what it describes: data, model and callbacks.

Names lead to classes; a constructor gets its flags, and what of the run and of the flat flags its
arguments name.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytorch_lightning as pl
import torch

from cli.adaptations import needless
from cli.chosen_classes import own_callbacks
from cli.flags import all_flags
from cli.own_module import asked_by, build_module
from cli.parsing import Configuration, to_primitive
from cli.problems import bad_arguments
from cli.provenance import provenance
from datamodules import DATAMODULES
from datamodules.contract import described, has, part
from lightning_modules.deployed import deploy, network_class, resolve, resolve_class
from lightning_modules.description import describe
from lightning_modules.losses import build_loss
from lightning_modules.network_signature import build_network, network_arguments
from lightning_modules.unsaved_values import check_everything_is_saved

CallbackTable = Mapping[str, Callable[..., pl.Callback]]  # classes, or partial ones


def build_data(configuration: Configuration) -> Any:
    """The datamodule; nothing is loaded yet."""
    arguments = dict(configuration["data"])
    name = arguments.pop("name")
    external = configuration["allow_external_code"]
    data_class = resolve_class(DATAMODULES.get(name, name), external)
    seed = {"seed": configuration["seed"]} if "seed" in asked_by(data_class) else {}
    data: Any = data_class(**arguments, **seed)
    if path := arguments.get("transform"):
        if not has(data, "use_transform"):
            raise ValueError(
                f"--data.transform {path}: --data {name} takes none; it needs a method "
                "use_transform(transform)"
            )
        try:
            transform = resolve(path, external)
            data.use_transform(transform() if isinstance(transform, type) else transform)
        except (ValueError, TypeError) as error:
            raise ValueError(f"--data.transform {path}: {error}") from error
    return data


def build_model(
    configuration: Configuration, data: Any
) -> tuple[pl.LightningModule, dict[str, Any]]:
    """The network for this data, inside the module that trains it; and what describes both."""
    arguments = dict(configuration["model"])
    name = arguments.pop("name")
    activation_checkpointing = arguments.pop("checkpoint_activations")
    external = configuration["allow_external_code"]
    network = network_class(name, external)
    with bad_arguments():
        arguments = to_primitive(network_arguments(network, data.network_arguments(), arguments))
        built = build_network(network, arguments | needless(configuration, arguments))
    part(data, "initialise")(built)
    description = describe(name, arguments, described(data)) | provenance(configuration)
    model = deploy(built, description["normalisation"], data.input_spec)
    if description["normalisation"]:  # convolutions are faster in this order, also on tensor cores
        model = model.to(memory_format=torch.channels_last)
    if configuration["compile"]:
        model.compile()  # in place: parameter names stay as they are
    check_everything_is_saved(model, description, data.example_batch, external)
    settings = {group: configuration[group] for group in ("optimizer", "schedule")}
    settings["activation_checkpointing"] = activation_checkpointing
    loss = configuration["loss"] | {"allow_external_code": external}
    with bad_arguments():
        criterion = build_loss(part(data, "task").num_outputs, data.train_targets, **loss)
        provided = {"model": model, "criterion": criterion, "description": description}
        return build_module(configuration, provided | settings), description


def build_callbacks(
    configuration: Configuration, table: CallbackTable, run: Any
) -> dict[str, pl.Callback]:
    """The enabled callbacks by name: those of a table in its order, then the user's own."""
    external = configuration["allow_external_code"]
    chosen = callbacks_of(configuration, table, run)
    for key, path in own_callbacks(configuration["callbacks"]):
        if configuration.get(key, {}).get("enabled", True):
            chosen[key] = resolve_class(path, external)(**configuration.get(key, {}))
    return chosen


def callbacks_of(
    configuration: Configuration, table: CallbackTable, run: Any
) -> dict[str, pl.Callback]:
    """The enabled callbacks of a table alone."""
    handed_over = {"run": run} | {name: configuration[name] for name in all_flags()}
    chosen = {}
    for key, make in table.items():
        flags = configuration[key]
        if flags.get("enabled", True):
            names = handed_over.keys() & inspect.signature(make).parameters
            chosen[key] = make(**{name: handed_over[name] for name in names}, **flags)
    return chosen
