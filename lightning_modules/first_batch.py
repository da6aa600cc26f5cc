"""Does a batch go through the network and the loss? Tried once, before anything is trained.

N batch, K outputs.
"""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy, Strategy
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn

from lightning_modules.batch import Batch, tensors_of
from tasks.base import Task

INSTALLED = "site-packages"


class Trainable(Protocol):
    """What is tried."""

    model: nn.Module  # deployable: raw inputs -> logits [N,K]
    criterion: nn.Module  # logits and targets -> the loss of each sample [N]
    description: dict[str, Any]
    task: Task


def check_first_batch(module: Trainable, batch: Batch, strategy: Strategy) -> None:
    """Runs a batch forward in training and in evaluation; nothing of the module changes.

    Args:
        batch: Raw inputs and targets as the task has them.
        strategy: How devices will work together; says where this process computes.

    Raises:
        ValueError: The network has nothing to train or cannot take the batch, a target is not one
            of the task, the answer is not logits [N,K], or the loss cannot take these, or gives
            something else than the loss of each sample.
    """
    name = module.description["network"]["name"]
    if not any(parameter.requires_grad for parameter in module.model.parameters()):
        raise ValueError(
            f"network {name} has no parameter to train: all are without gradient (requires_grad), "
            "or there are none; --unfreeze.enabled true holds layers back for a time"
        )
    if bad := module.task.bad_target(batch[1].numpy(force=True)):
        raise ValueError(f"example_batch(): {bad}")
    is_whole = isinstance(strategy, (SingleDeviceStrategy, DDPStrategy))
    device = (
        strategy.root_device if is_whole else torch.device("cpu")
    )  # a part may be all that fits
    inputs, targets = [x.to(device) for x in tensors_of(batch[0])], batch[1].to(device)
    model = module.model.to(device)
    expected = [len(targets), module.task.num_outputs]
    for training in (True, False):
        if training and len(targets) < 2:  # BatchNorm has no statistics of one sample
            continue
        with isolate_rng(), torch.no_grad(), unchanged_mode(model, training):
            logits, went_in = answer_of(model, inputs, name)
        is_right = isinstance(logits, Tensor) and list(logits.shape) == expected
        if not is_right or not logits.is_floating_point():
            raise ValueError(
                f"network {name} answers {'in training' if training else 'in evaluation'} with "
                f"{described(logits)} to {went_in}; expected logits [N,K], one floating-point "
                f"tensor {expected}"
            )
    with isolate_rng():
        check_loss(module.criterion.to(device), logits.clone(), targets)


def check_loss(criterion: nn.Module, logits: Tensor, targets: Tensor) -> None:
    """Computes the loss of each sample and looks whether it leads back to the logits.

    Raises:
        ValueError: It does not.
    """
    try:
        losses = criterion(logits.requires_grad_(), targets)
    except Exception as error:
        went_in = f"logits {described(logits)} and targets {described(targets)}"
        explain(error, f"loss {criterion.name}", went_in)
    if not losses.requires_grad:
        raise ValueError(
            f"loss {criterion.name} has no gradient: compute it from the logits by operations of "
            "torch, without detach(), argmax() or item()"
        )


def answer_of(model: nn.Module, inputs: list[Tensor], name: str) -> tuple[Any, str]:
    """What a deployable module answers, and what its network was given, in words."""
    seen: list[str] = [", ".join(map(described, inputs))]
    hook = model.network.register_forward_pre_hook(  # type: ignore[union-attr]
        lambda _, arguments: seen.append(", ".join(map(described, arguments)))
    )
    try:
        return model.forward(*inputs), seen[-1]  # not the call, which may be compiled
    except Exception as error:
        explain(error, f"network {name}", seen[-1])
    finally:
        hook.remove()


def explain(error: Exception, what: str, went_in: str) -> NoReturn:
    """Says in one message what torch refuses; a fault in the user's own code keeps its trace.

    Raises:
        ValueError: In its place.
    """
    trace = list(traceback.extract_tb(error.__traceback__))
    frames = trace[2:] or trace  # without this file and the input side
    own = [frame for frame in frames if INSTALLED not in frame.filename] or frames
    last, is_own = own[-1], INSTALLED not in frames[-1].filename
    where = f"{Path(last.filename).name}, line {last.lineno}: {last.line}"
    text = f"{what} cannot take its first batch, {went_in}"
    if is_own and not isinstance(error, RuntimeError):
        error.add_note(f"{text} ({where})")
        raise error
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    raise ValueError(f"{text}: {reason} ({where})") from error


@contextmanager
def unchanged_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Within it another mode; after it modes and buffers are as they were."""
    modes = [(part, part.training) for part in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        model.train(training)
        yield
    finally:
        for part, mode in modes:
            part.training = mode
        for buffer, value in buffers:
            buffer.copy_(value)


def described(value: Any) -> str:
    """Type and shape of tensors, in whatever they are packed."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, Mapping):
        inside = (f"{name}: {described(part)}" for name, part in value.items())
        return f"a {type(value).__name__} of {', '.join(inside)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {', '.join(map(described, value))}"
    return type(value).__name__
