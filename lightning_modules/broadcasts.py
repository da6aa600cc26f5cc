"""Finds where a loss pairs every sample with every other one by mistake: [N,1] against [N].

Torch stretches both to [N,N] without a word, and a mean over them looks like a loss of each sample.

N batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

# losses of each element, which may be averaged before anyone sees that there are too many
BY_ELEMENT = (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.kl_div, F.poisson_nll_loss)


class BroadcastError(ValueError):
    """Of both shapes."""


class RefusesBroadcasts(TorchFunctionMode):
    """Within it [N,1] against [N] is refused, but for comparisons.

    Args:
        num_samples: N, at least 2.
        what: The function that is looked at, for the message.
    """

    def __init__(self, num_samples: int, what: str) -> None:
        super().__init__()
        self.column, self.row = [num_samples, 1], [num_samples]
        self.what = what
        self.depth = 0  # of networks that are running, which are not looked at

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = [*args, *(kwargs or {}).values()]
        shapes = [list(x.shape) for x in given if isinstance(x, Tensor)]
        is_pair = not self.depth and self.column in shapes and self.row in shapes
        if is_pair and function in BY_ELEMENT:
            self.refuse(function)
        found = function(*args, **(kwargs or {}))
        is_value = is_pair and isinstance(found, Tensor) and found.dtype != torch.bool
        if is_value and list(found.shape) == self.row * 2:
            self.refuse(function)
        return found

    def refuse(self, function: Callable[..., Any]) -> None:
        """Raises BroadcastError."""
        name = (resolve_name(function) or getattr(function, "__name__", "")).rpartition(".")[2]
        size = self.row[0]
        raise BroadcastError(
            f"{self.what} computes {name} of {self.column} against {self.row}, which pairs every "
            f"sample with every other one, {self.row * 2}: losses are [N], one of each sample; "
            f"bring both to {self.row} (squeeze(1)), or, where all pairs are meant, write "
            f"[{size},1] against [1,{size}] (x[None, :])"
        )


@contextmanager
def no_broadcasts(num_samples: int, what: str, networks: list[nn.Module]) -> Iterator[None]:
    """Refuses them within, but for what happens in these networks."""
    if num_samples < 2:
        yield
        return
    mode = RefusesBroadcasts(num_samples, what)

    def enter(*_: Any) -> None:
        mode.depth += 1

    def leave(*_: Any) -> None:
        mode.depth -= 1

    hooks = [one.register_forward_pre_hook(enter) for one in networks]
    hooks += [one.register_forward_hook(leave) for one in networks]
    try:
        with mode:
            yield
    finally:
        for hook in hooks:
            hook.remove()
