"""What the fit checks before it starts: whether its network can be exported, in which formats.

N batch, K outputs.
"""

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from exporters.candidate import format_module
from exporters.format_choice import Choice, check_speed_limit, choose
from exporters.operators import Translations
from exporters.program import probe
from exporters.spec import EXAMPLE_BATCH, ExportSpec
from preprocessing.inputs import values_of
from tasks.base import build_task

# import path, whether it may lie outside of this project, operators -> a table
FindTranslations = Callable[[str | None, bool, Collection[str]], Mapping[Any, Any]]


def check_export(
    module: nn.Module,
    description: Mapping[str, Any],
    datamodule: Any,
    formats: str = "default",
    fail_if_slower: bool = False,
    onnx_translations: str | None = None,
    allow_external_code: bool = False,
    find_translations: FindTranslations | None = None,
) -> str | None:
    """`check` with what the description says and the datamodule shows, for the flags --export.*.

    Args:
        find_translations: The table for an import path, whether it may lie outside of this project,
            and the names of operators.

    Returns:
        What a user should know before training: formats that this network will not have, and what
        the bundle will not be able to read.

    Raises:
        ValueError: The module cannot be exported as the datamodule describes it, or not in a format
            that was asked for by its name.
    """
    choice = choose(formats)
    check_speed_limit(choice.names, fail_if_slower, "--export.")
    inputs, _ = datamodule.example_batch()
    spec = ExportSpec.from_json(description["input_spec"])
    num_outputs = build_task(description).num_outputs
    translations = None
    if find_translations is not None:
        translations = partial(find_translations, onnx_translations, allow_external_code)
    how = num_outputs, choice, translations
    notes = [check(module, spec, values_of(inputs), *how)]
    if description["preprocessing"]["kind"] == "arrays":
        notes.append(
            "export: the bundle will take .npz files of the inputs alone, since this data has no "
            "preprocessing that says how other files become inputs"
        )
    return "\n".join(filter(None, notes)) or None


def check(
    module: nn.Module,
    spec: ExportSpec,
    example: Sequence[Tensor] | None = None,
    num_outputs: int | None = None,
    choice: Choice | None = None,
    translations: Translations | None = None,
) -> str | None:
    """Runs a copy of the module as an exporter would; meant for the start of the fit.

    Args:
        module: The deployable module (raw input -> logits); left as it is.
        spec: What the datamodule says goes in.
        example: One tensor an input, batch of at least 2; None makes one.
        num_outputs: K that the logits must have.
        choice: The formats to look at; None stands for the default ones.
        translations: Gives those of operators that ONNX's exporter does not know.

    Returns:
        Why formats of groups cannot be made, a line a reason; None where all can.

    Raises:
        ValueError: Signature, example or output do not fit, and what was expected; or why a format
            cannot be made that was named.
    """
    parameters = list(inspect.signature(module.forward).parameters)
    if parameters != spec.names:
        raise ValueError(
            f"export: forward of {type(module).__name__} takes ({', '.join(parameters)}), but the "
            f"datamodule's input_spec gives ({', '.join(spec.names)}): names and order must agree"
        )
    inputs = tuple(spec.example() if example is None else example)
    if len(inputs) != len(spec.names):
        raise ValueError(f"export: {len(inputs)} example tensors for {', '.join(spec.names)}")
    arrays = (tensor.detach().cpu().numpy() for tensor in inputs)
    spec.check_arrays(dict(zip(spec.names, arrays, strict=True)), "export: example_batch()")
    if len(inputs[0]) < EXAMPLE_BATCH:
        raise ValueError("export: the example needs a batch of at least 2 (1 would be specialised)")
    copied = copy.deepcopy(module).cpu().float().eval()
    on_cpu = tuple(tensor.detach().cpu() for tensor in inputs)
    logits, found = probe(copied, on_cpu, spec.dynamic_shapes(), translations)
    check_logits(logits, len(inputs[0]), num_outputs)
    return check_formats(copied, on_cpu, {"probe": found}, choice or choose("default"))


def check_formats(
    module: nn.Module, example: tuple[Tensor, ...], description: dict[str, Any], choice: Choice
) -> str | None:
    """The second half of `check`."""
    names: dict[str, list[str]] = defaultdict(list)  # by the reason
    for name in choice.names:
        if reason := why_not(name, module, example, description):
            names[reason].append(name)
    named = [f"{n}: {reason}" for reason, all_ in names.items() for n in all_ if n in choice.named]
    if named:
        raise ValueError(f"export: asked for by name, but cannot be made: {'; '.join(named)}")
    lines = [f"export: {', '.join(all_)} will be unavailable: {r}" for r, all_ in names.items()]
    return "\n".join(lines) or None


def why_not(
    name: str, module: nn.Module, example: tuple[Tensor, ...], description: dict[str, Any]
) -> str | None:
    """Why a format cannot be made; TorchScript is tried, since it also reads what never runs."""
    reason = format_module(name).unavailable(description)
    if reason is None and name == "torchscript":
        reason = format_module(name).fault(module, example)
    return reason


def check_logits(logits: object, batch: int, num_outputs: int | None) -> None:
    """Refuses an output that is not finite logits [N,K].

    Raises:
        ValueError: What was found instead.
    """
    outputs = "K" if num_outputs is None else str(num_outputs)
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"export: forward returns {type(logits).__name__}, expected one tensor "
            f"of logits [{batch},{outputs}]"
        )
    shape = list(logits.shape)
    if len(shape) != 2 or shape[0] != batch or num_outputs not in (None, shape[1]):
        raise ValueError(f"export: forward returns {shape}, expected logits [{batch},{outputs}]")
    if not bool(torch.isfinite(logits).all()):
        raise ValueError("export: the logits are not finite on the example")
