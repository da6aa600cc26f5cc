"""Repeats the steps of a run that ended in values that were not finite, and names the first one."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn

from preprocessing.inputs import values_of

# network, network -> loss; returns a finding with `rows`, or None
Find = Callable[[nn.Module, Callable[[nn.Module], Any]], Any]


class Reproduced(Exception):
    """The value was found again; the message says where."""


class Replay(pl.Callback):
    """Looks closely at every batch from the first suspicious step on.

    Args:
        find: Runs one step on a copy and names the first value that is not finite.
        first_step: Optimizer steps after which all was well.
        last_step: Optimizer steps after which it was not.
    """

    def __init__(self, find: Find, first_step: int, last_step: int) -> None:
        self.find = find
        self.first_step = first_step
        self.last_step = last_step

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step < self.first_step:
            return
        if trainer.global_step > self.last_step:
            trainer.should_stop = True
            return
        inputs, targets = batch

        def loss_of(network: nn.Module) -> Any:
            with trainer.precision_plugin.train_step_context():
                logits = network(*values_of(inputs))
                return pl_module.criterion(logits, targets).mean()

        finding = self.find(pl_module.model, loss_of)
        answers: list[str | None] = [finding and self.describe(trainer, batch_idx, finding)]
        if trainer.world_size > 1:  # all ranks end, or one would wait for the others
            answers *= trainer.world_size
            torch.distributed.all_gather_object(answers, answers[trainer.global_rank])
        for answer in filter(None, answers):
            raise Reproduced(answer)

    def describe(self, trainer: pl.Trainer, batch_idx: int, finding: Any) -> str:
        """One sentence: where it was found, and in which samples of this rank."""
        ids = sample_ids(trainer, batch_idx)
        shown = [ids[row] for row in finding.rows] if finding.rows else ids
        what = "samples" if finding.rows else "one of the samples"
        return (
            f"step {trainer.global_step}, batch {batch_idx} of epoch {trainer.current_epoch}: "
            f"first value that is not finite in the {finding}; {what} {short(shown)} of train"
        )


def sample_ids(trainer: pl.Trainer, batch_idx: int) -> list[int]:
    """Rows of the training split that are in a batch of the current epoch, on this rank."""
    loader: Any = trainer.train_dataloader
    sampler = copy.copy(loader.batch_sampler)
    sampler.set_epoch(trainer.current_epoch)
    sampler.start_at(batch_idx)
    (batch,) = itertools.islice(sampler, 1)
    return [int(index) for index in batch.indices]


def short(ids: list[int], most: int = 8) -> str:
    """The first few numbers."""
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(map(str, ids[:most])) + more
