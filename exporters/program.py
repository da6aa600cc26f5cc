"""torch.export of a network, and a probe that finds beforehand what no graph can hold."""

import linecache
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._python_dispatch import TorchDispatchMode

from exporters.operators import Translations, facts_of

TORCH = str(Path(torch.__file__).parent)
# files of the frames between a line of Python and the recorder
BETWEEN = (Path(__file__).name, "_compile.py", "eval_frame.py")


def to_program(
    module: nn.Module, example: Sequence[Tensor], dynamic_shapes: Any
) -> ExportedProgram:
    """Runs torch's exporter; a compiler of the program must run in `recurrent_loops` too."""
    with recurrent_loops(), torch.no_grad():
        return torch.export.export(module, tuple(example), dynamic_shapes=dynamic_shapes)


@contextmanager
def recurrent_loops() -> Iterator[None]:
    """Keeps the length of LSTM and GRU dynamic, by the only way there is in torch 2.11 to 2.14.

    A later torch may do so by itself; whether it does, the gate's sweep over lengths shows.
    https://github.com/pytorch/pytorch/issues/115092, https://github.com/pytorch/pytorch/pull/184872
    """
    with ExitStack() as stack, warnings.catch_warnings():
        ignore_loop_warnings()
        try:
            from torch.export import _patches
        except ImportError:
            yield
            return
        stack.enter_context(_patches.register_lstm_while_loop_decomposition())
        stack.enter_context(_patches.register_gru_while_loop_decomposition())
        yield


def ignore_loop_warnings() -> None:
    """Torch warns of its own code; https://github.com/pytorch/pytorch/pull/163809 is the other."""
    warnings.filterwarnings("ignore", "_check_is_size will be removed", FutureWarning)
    warnings.filterwarnings("ignore", r"The tensor attributes? .*_flat_weights", UserWarning)


# ---- probe -----------------------------------------------------------------------------


class Recorder(TorchDispatchMode):
    """Notes every operator, and each line that reads a truth value out of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[str] = set()
        self.qualified: set[str] = set()  # such as aten::relu
        self.decisions: dict[str, None] = {}  # in the order of the run, each once

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Runs the operator as it would have run."""
        name = func.overloadpacket.__name__
        self.operators.add(name)
        self.qualified.add(f"{func.namespace}::{name}")
        if name == "_local_scalar_dense" and args[0].dtype == torch.bool:
            frame = reading_frame()
            if not frame.f_code.co_filename.startswith(TORCH):  # exporters know torch's own
                self.decisions[describe(frame)] = None
        return func(*args, **(kwargs or {}))


def reading_frame() -> FrameType:
    """The innermost frame that is neither the recorder's nor on the way to it."""
    frame = sys._getframe()
    while Path(frame.f_code.co_filename).name in BETWEEN and frame.f_back is not None:
        frame = frame.f_back
    return frame


def describe(frame: FrameType) -> str:
    """ "network.py:12: if x.sum() > 0:"."""
    path = frame.f_code.co_filename
    return f"{Path(path).name}:{frame.f_lineno}: {linecache.getline(path, frame.f_lineno).strip()}"


def probe(
    module: nn.Module,
    example: Sequence[Tensor],
    dynamic_shapes: Any,
    translations: Translations | None = None,
) -> tuple[object, dict[str, list[str]]]:
    """Runs the module once.

    Returns:
        Its output, and what was found: "operators", "decisions", the lines that choose by the
        values of a tensor so that torch.export fails, and what `facts_of` says of the operators.

    Raises:
        ValueError: There is no table of translations where one was named.
    """
    with torch.no_grad(), Recorder() as recorder:
        output = module(*example)
    decisions = list(recorder.decisions)
    if decisions:
        try:
            to_program(module, example, dynamic_shapes)
            decisions = []
        except Exception:  # of many types; the verdict is that it fails
            pass
    facts = facts_of(recorder.qualified, translations)
    return output, {"operators": sorted(recorder.operators), "decisions": decisions} | facts


def operators_of(module: nn.Module, example: Sequence[Tensor]) -> list[str]:
    """The operators of one run, such as "aten::relu"."""
    with torch.no_grad(), Recorder() as recorder:
        module(*example)
    return sorted(recorder.qualified)


def graph_unavailable(description: Mapping[str, Any]) -> str | None:
    """Why no format that is a graph can be made of a network; None where all can."""
    decisions = description["probe"]["decisions"]
    if not decisions:
        return None
    return (
        f"the network decides in Python on the values of a tensor ({'; '.join(decisions)}), which "
        "no graph can hold: use torchscript, which keeps it, or write it with torch.where"
    )
