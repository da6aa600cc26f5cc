"""Does a batch go through the network and the loss? Tried once, before anything is trained.

N batch, K outputs.
"""

import inspect
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy, Strategy
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn

from lightning_modules.batch import Batch, first_samples, tensors_of
from lightning_modules.broadcasts import BroadcastError, no_broadcasts
from lightning_modules.losses import SampleLoss, check_losses
from preprocessing.inputs import shape_in_words
from tasks.base import Task

INSTALLED = "site-packages"
OURS = ("first_batch.py", "classifier.py", "deployed.py", "losses.py", "broadcasts.py")
CONTRACT = "compute_loss(batch) -> (losses [N], outcomes {name: [N,...], without gradient})"


@runtime_checkable
class HasNetwork(Protocol):
    """A module whose network is tried."""

    description: dict[str, Any]
    task: Task

    @property
    def deployed(self) -> nn.Module:
        """Raw inputs -> logits [N,K]."""
        ...


@runtime_checkable
class HasLoss(Protocol):
    """A module whose loss is tried."""

    def compute_loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]: ...


def check_first_batch(module: pl.LightningModule, batch: Batch, strategy: Strategy) -> None:
    """Runs a batch forward in training and in evaluation; nothing of the module changes.

    A module of the user's own is tried as far as it has a network and a loss to try.

    Args:
        batch: Raw inputs and targets as the task has them.
        strategy: How devices will work together; says where this process computes.

    Raises:
        ValueError: The network has nothing to train or cannot take the batch, a target is not one
            of the task, the answer is not logits [N,K], or the loss cannot take these, pairs
            samples with each other or gives something else than the loss of each sample.
    """
    is_whole = isinstance(strategy, (SingleDeviceStrategy, DDPStrategy))
    device = (
        strategy.root_device if is_whole else torch.device("cpu")
    )  # a part may be all that fits
    if isinstance(module, HasNetwork):
        check_network(module, batch, device)
    if isinstance(module, HasLoss):
        check_loss(module.to(device), batch, device)


# ---- the network --------------------------------------------------------------------------


def check_network(module: HasNetwork, batch: Batch, device: torch.device) -> None:
    name = module.description["network"]["name"]
    if not any(parameter.requires_grad for parameter in module.deployed.parameters()):
        raise ValueError(
            f"network {name} has no parameter to train: all are without gradient (requires_grad), "
            "or there are none; --unfreeze.enabled true holds layers back for a time"
        )
    check_inputs(module.deployed, name)
    if bad := module.task.bad_target(batch[1].numpy(force=True)):
        raise ValueError(f"example_batch(): {bad}")
    inputs, targets = [x.to(device) for x in tensors_of(batch[0])], batch[1]
    model = module.deployed.to(device)
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
                f"{shape_in_words(logits)} to {went_in}; expected logits [N,K], one floating-point "
                f"tensor {expected}"
            )


def check_inputs(model: Any, label: str) -> None:
    """Raises ValueError where a network takes more or fewer inputs than the data gives."""
    names = inspect.signature(model.forward).parameters  # those of the data
    signature = inspect.signature(model.network.forward)
    try:
        signature.bind(*names)
    except TypeError as error:
        raise ValueError(
            f"network {label} takes {', '.join(signature.parameters)}, but this data gives "
            f"{', '.join(names)}: choose another network (--model) or other data (--data)"
        ) from error


def answer_of(model: nn.Module, inputs: list[Tensor], name: str) -> tuple[Any, str]:
    """What a deployable module answers, and what its network was given, in words."""
    seen: list[str] = [", ".join(map(shape_in_words, inputs))]
    hook = model.network.register_forward_pre_hook(  # type: ignore[union-attr]
        lambda _, arguments: seen.append(", ".join(map(shape_in_words, arguments)))
    )
    try:
        return model.forward(*inputs), seen[-1]  # not the call, which may be compiled
    except Exception as error:
        explain(error, f"network {name}", seen[-1])
    finally:
        hook.remove()


# ---- the loss -----------------------------------------------------------------------------


def check_loss(module: Any, batch: Batch, device: torch.device) -> None:
    """Computes the loss of each sample and looks whether it leads back to the weights.

    Raises:
        ValueError: It does not, or `compute_loss` breaks its contract.
    """
    outputs = module.task.num_outputs if isinstance(module, HasNetwork) else 0
    num_samples = len(batch[1])
    if num_samples == outputs > 2:  # or [N,1] against [K] would look like [N,1] against [N]
        num_samples -= 1
    batch = first_samples(batch, num_samples, device)
    what, (inputs, targets) = f"{type(module).__name__}.compute_loss", batch
    given = ", ".join(map(shape_in_words, tensors_of(inputs)))
    went_in = f"{given} and targets {shape_in_words(targets)}"
    losses_used = [part for part in module.modules() if isinstance(part, SampleLoss)]
    seen: list[tuple[str, str]] = [(what, went_in)]  # what is running, innermost last
    hooks: list[Any] = []
    for loss in losses_used:
        hooks.append(
            loss.register_forward_pre_hook(lambda one, args: seen.append(of_loss(one, args)))
        )
        hooks.append(loss.register_forward_hook(lambda *_: seen.pop() and None))
    networks = [part for part in module.children() if part not in losses_used]
    try:
        with (
            isolate_rng(),
            torch.enable_grad(),
            torch.compiler.set_stance("force_eager"),
            unchanged_mode(module, num_samples > 1),
            no_broadcasts(num_samples, what, networks),
        ):
            found = module.compute_loss(batch)
    except BroadcastError as error:
        raise BroadcastError(str(error).replace(what, seen[-1][0], 1)) from None
    except Exception as error:
        explain(error, *seen[-1])
    finally:
        for hook in hooks:
            hook.remove()
    check_answer(found, targets, what, losses_used)


def of_loss(loss: SampleLoss, arguments: tuple[Any, ...]) -> tuple[str, str]:
    """The name of a loss, and what went in."""
    logits, targets = arguments
    return (
        f"loss {loss.name}",
        f"logits {shape_in_words(logits)} and targets {shape_in_words(targets)}",
    )


def check_answer(found: Any, targets: Tensor, what: str, losses_used: list[SampleLoss]) -> None:
    """Raises ValueError unless `compute_loss` gave what its contract says."""
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Mapping):
        raise ValueError(f"{what} gives {shape_in_words(found)}; expected {CONTRACT}")
    losses, outcomes = found
    check_losses(losses, targets, what, f"targets {list(targets.shape)}", CONTRACT)
    for name, column in outcomes.items():
        is_right = isinstance(column, Tensor) and column.shape[:1] == targets.shape[:1]
        if not is_right or column.requires_grad:
            attached = " with a gradient (detach it)" if is_right else ""
            raise ValueError(
                f"{what} gives the outcome {name} as {shape_in_words(column)}{attached} for "
                f"{len(targets)} samples; expected {CONTRACT}"
            )
    if not losses.requires_grad:
        name = f"loss {losses_used[0].name}" if len(losses_used) == 1 else what
        raise ValueError(
            f"{name} has no gradient: compute it from the logits by operations of "
            "torch, without detach(), argmax() or item()"
        )


# ---- words --------------------------------------------------------------------------------


def explain(error: Exception, what: str, went_in: str) -> NoReturn:
    """Says in one message what torch refuses; a fault in the user's own code keeps its trace.

    Raises:
        ValueError: In its place.
    """
    trace = list(traceback.extract_tb(error.__traceback__))
    if is_ours(trace[-1].filename) and isinstance(error, ValueError):
        raise error  # it says already what is wrong
    frames = [frame for frame in trace if not is_ours(frame.filename)] or trace
    frames = [frame for frame in frames if not frame.filename.startswith("<")] or frames  # torch.fx
    own = [frame for frame in frames if INSTALLED not in frame.filename] or frames
    last, is_own = own[-1], INSTALLED not in frames[-1].filename
    where = f"{Path(last.filename).name}, line {last.lineno}: {last.line}"
    text = f"{what} cannot take its first batch, {went_in}"
    if is_own and not isinstance(error, RuntimeError):
        error.add_note(f"{text} ({where})")
        raise error
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    raise ValueError(f"{text}: {reason} ({where})") from error


def is_ours(path: str) -> bool:
    """Whether a file of this package, and not of the user, lies there."""
    return Path(path).parent == Path(__file__).parent and Path(path).name in OURS


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
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
