"""The LightningModule that trains: ours, or one of the user's own by its import path.

It is built with what it asks for of what train.py has: `model`, `criterion`, `description` and the
settings of optimizer and schedule. What else its constructor takes is a flag, `--module.ARG`.
"""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import pytorch_lightning as pl

from lightning_modules import MODULES
from lightning_modules.deployed import resolve_class

PROVIDED = frozenset(
    ["model", "criterion", "description", "optimizer", "schedule", "activation_checkpointing"]
)
NEEDED = ("training_step", "configure_optimizers")
FLAGS_OF = {  # what its constructor may ask for -> how flags begin that are for that alone
    "model": "model.",
    "criterion": "loss.",
    "optimizer": "optimizer.",
    "schedule": "schedule.",
    "activation_checkpointing": "model.checkpoint_activations",
}


def module_class(name: str, allow_external_code: bool = False) -> type[pl.LightningModule]:
    """The class behind a short name of `MODULES` or an import path.

    Raises:
        ValueError: It is no LightningModule, or lacks what Lightning needs of one that trains.
    """
    found = resolve_class(MODULES.get(name, name), allow_external_code)
    if not issubclass(found, pl.LightningModule):
        raise ValueError(f"{name!r} is no pytorch_lightning.LightningModule")
    if missing := [one for one in NEEDED if not is_defined(found, one)]:
        raise ValueError(f"{name!r} has no {' and no '.join(missing)}, which train a module")
    return found


def is_defined(module: type[pl.LightningModule], method: str) -> bool:
    """Whether a class has a method of its own, or inherits one that is no stub of Lightning's."""
    return getattr(module, method) is not getattr(pl.LightningModule, method)


def asked_by(module: Any) -> set[str]:
    """Names of a constructor's arguments; `**kwargs` are taken to go to the class above."""
    names: set[str] = set()
    for one in module.__mro__:
        if "__init__" in vars(one):
            found = inspect.signature(vars(one)["__init__"]).parameters.values()
            names |= {parameter.name for parameter in found}
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in found):
                break
    return names


def not_asked_for(module: Any, given: Iterable[str]) -> list[str]:
    """A line on the settings, by name, that reach nothing: the module does not ask for them."""
    asked = asked_by(module)
    starts = tuple(start for part, start in FLAGS_OF.items() if part not in asked)
    names = ", ".join(f"--{name}" for name in given if name.startswith(starts))
    return [f"without effect, as {module.__name__} does not ask for it: {names}"] if names else []


def untested_line(module: pl.LightningModule) -> str | None:
    """Says, before training, that there will be no test."""
    is_tested = is_defined(type(module), "test_step")
    return None if is_tested else f"no test, {type(module).__name__} has no test_step"


def build_module(
    configuration: Mapping[str, Any], provided: Mapping[str, Any]
) -> pl.LightningModule:
    """Builds the chosen class.

    Args:
        provided: What train.py has, by name; what the constructor does not ask for is left out.

    Raises:
        ValueError: It optimizes by itself, which takes no accumulation or clipping from outside.
    """
    arguments = dict(configuration["module"])
    name = arguments.pop("name")
    chosen = module_class(name, configuration["allow_external_code"])
    asked = asked_by(chosen)
    module = chosen(**{k: v for k, v in provided.items() if k in asked}, **arguments)
    if not module.automatic_optimization and (refused := done_from_outside(configuration)):
        raise ValueError(
            f"{chosen.__name__} optimizes by itself (automatic_optimization = False): leave "
            f"{' and '.join(refused)} out, and do that in its training_step"
        )
    return module


def done_from_outside(configuration: Mapping[str, Any]) -> list[str]:
    """Flags of what Lightning does only where it optimizes."""
    window, limit = (
        configuration[name] for name in ("accumulate_grad_batches", "gradient_clip_val")
    )
    found = [f"--accumulate_grad_batches {window}"] * (window != 1)
    return found + [f"--gradient_clip_val {limit}"] * bool(limit)
