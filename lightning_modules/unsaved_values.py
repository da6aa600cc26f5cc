"""Finds what a network draws by chance when it is built and does not save in its checkpoint.

A checkpoint holds parameters and persistent buffers. A random buffer with `persistent=False`, or a
random tensor that is a plain attribute, is another one whenever the network is built again, so that
a checkpoint would answer differently at each load.
"""

import io
import pickle
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lightning_modules.batch import Batch, Inputs, tensors_of
from lightning_modules.checkpoint import STATE_PREFIX
from lightning_modules.deployed import load_deployed

OTHER_SEED = 20_011


def check_everything_is_saved(
    model: nn.Module,
    description: Mapping[str, Any],
    example_batch: Callable[[], Batch],
    allow_external_code: bool = False,
) -> None:
    """Loads the model as from a checkpoint, only where it has tensors that are not saved at all.

    Args:
        model: A deployable one, as it was just built.
        description: How a checkpoint describes it.
        example_batch: Makes raw inputs and targets.
        allow_external_code: Whether its class may come from elsewhere.

    Raises:
        ValueError: What was loaded answers differently, by what a checkpoint does not hold; or it
            would hold what cannot be loaded again.
    """
    check_state_is_plain(model, description)
    first = dict(unsaved_tensors(model.network))  # type: ignore[arg-type]
    if not first:
        return
    with other_draws():
        weights = {STATE_PREFIX + name: value for name, value in model.state_dict().items()}
        checkpoint = {"description": description, "state_dict": weights}
        loaded = load_deployed(checkpoint, allow_external_code)
        second = dict(unsaved_tensors(loaded.network))  # type: ignore[arg-type]
        changed = [name for name, value in first.items() if not are_same(value, second.get(name))]
        # what is filled anew at each call, or used in training alone, does no harm
        if not changed or answers_alike(model, loaded, example_batch()[0]):
            return
    raise ValueError(
        f"network {description['network']['name']} draws {', '.join(changed)} by chance when it is "
        "built but does not save it: its checkpoint would answer differently at each load; use "
        "register_buffer(name, value) without persistent=False, or a generator with a fixed seed"
    )


def check_state_is_plain(model: nn.Module, description: Mapping[str, Any]) -> None:
    """Writes and reads what of the state is no tensor, as a checkpoint does.

    Raises:
        ValueError: A checkpoint with it could not be loaded, which only allows plain values.
    """
    for key, value in model.state_dict().items():
        if isinstance(value, Tensor):
            continue
        try:
            torch.save(value, kept := io.BytesIO())
            kept.seek(0)
            torch.load(kept, weights_only=True)
        except (pickle.PickleError, AttributeError, TypeError) as error:
            raise ValueError(
                f"network {description['network']['name']} keeps a {type(value).__name__} in its "
                f"state ({key}, from get_extra_state), with which no checkpoint could be loaded; "
                "keep tensors, numbers, texts, or lists and dictionaries of these"
            ) from error


@contextmanager
def other_draws() -> Iterator[None]:
    """Within it, chance is another; after it, all draws go on as if nothing had been drawn."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(OTHER_SEED)
        np.random.seed(OTHER_SEED)
        torch.manual_seed(OTHER_SEED)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def answers_alike(model: nn.Module, loaded: nn.Module, inputs: Inputs) -> bool:
    """Whether both give the same logits, to rounding."""
    raw = tensors_of(inputs)
    modes = [(part, part.training) for part in model.modules()]
    with torch.no_grad():
        # not the call itself, which may be compiled
        one, other = model.eval().forward(*raw), loaded.forward(*raw)
    for part, mode in modes:
        part.training = mode
    return one.shape == other.shape and torch.allclose(one, other, 1e-3, 1e-4, equal_nan=True)


def unsaved_tensors(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Buffers that are not persistent, and tensors or arrays in plain attributes, by name."""
    saved = network.state_dict(keep_vars=True)
    for name, buffer in network.named_buffers(remove_duplicate=False):
        if name not in saved:
            yield name, buffer
    for prefix, module in network.named_modules():
        for name, value in vars(module).items():
            parts = value if isinstance(value, (list, tuple)) else [value]
            for index, part in enumerate(parts):
                if is_numeric(part):
                    place = f"[{index}]" if parts is value else ""
                    yield f"{prefix}.{name}{place}".lstrip("."), torch.as_tensor(part)


def is_numeric(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    return isinstance(value, Tensor) and not isinstance(value, nn.Parameter)


def are_same(one: Tensor, other: Tensor | None) -> bool:
    """Whether all values are equal, NaN to NaN."""
    if other is None or one.shape != other.shape:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())
