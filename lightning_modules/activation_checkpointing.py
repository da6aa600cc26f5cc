"""Activation checkpointing (Chen et al. 2016) for any network, without touching its file.

Each block's forward runs without storing activations and is repeated in the backward pass.
Parameter names do not change.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def checkpoint_activations(network: nn.Module) -> int:
    """Makes every block recompute; returns the number of blocks.

    Blocks are the outermost modules with parts of their own; a list's blocks are its items.
    """
    blocks = list(find_blocks(network))
    for block in blocks:
        # a bound method: copying the module binds the copy's method to the copy
        block.forward = MethodType(recomputing_forward, block)
    return len(blocks)


def find_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost parts that have parts of their own, looking into wrappers and lists."""
    children = list(module.children())
    is_wrapper = len(children) == 1
    for child in children:
        is_list = isinstance(child, (nn.ModuleList, nn.Sequential))
        grandchildren = list(child.children())
        if is_wrapper or (is_list and any(list(part.children()) for part in grandchildren)):
            yield from find_blocks(child)
        elif grandchildren and not isinstance(child, nn.ModuleList):
            yield child


def recomputing_forward(block: nn.Module, *inputs: Any, **options: Any) -> Any:
    """The block's own forward, recomputed in the backward pass while training."""
    forward = type(block).forward
    if not (block.training and torch.is_grad_enabled()):
        return forward(block, *inputs, **options)

    def contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
        return nullcontext(), frozen_batch_statistics(block)

    return checkpoint(forward, block, *inputs, use_reentrant=False, context_fn=contexts, **options)


@contextmanager
def frozen_batch_statistics(block: nn.Module) -> Iterator[None]:
    """Keeps the recomputation from counting a batch twice in BatchNorm's running statistics."""
    norms = [part for part in block.modules() if isinstance(part, _BatchNorm)]
    kept = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
