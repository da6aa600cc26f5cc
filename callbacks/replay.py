"""Repeats the steps of a run that ended in values that were not finite, and names the first one."""

import copy
import itertools
from typing import Any

import pytorch_lightning as pl
import torch

from callbacks.first_non_finite import Finding, find_first_non_finite
from callbacks.module_contract import ComputesLoss, name_of, steps_done


class Reproduced(Exception):
    """The value was found again; the message says where."""


class Replay(pl.Callback):
    """Looks closely at every batch from the first suspicious step on.

    Args:
        first_step: Optimizer steps after which all was well.
        last_step: Optimizer steps after which it was not.
    """

    def __init__(self, first_step: int, last_step: int) -> None:
        self.first_step = first_step
        self.last_step = last_step

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not isinstance(pl_module, ComputesLoss):
            raise ValueError(
                f"{name_of(pl_module)} has no compute_loss, without which no step is repeated"
            )

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        step = steps_done(trainer)
        if step < self.first_step:
            return
        if step > self.last_step:
            trainer.should_stop = True
            return
        precision = trainer.precision_plugin.train_step_context
        finding = find_first_non_finite(pl_module, batch, precision)
        found = None if finding is None else self.describe(trainer, batch_idx, finding)
        answers: list[str | None] = [found]
        if trainer.world_size > 1:  # all ranks end, or one would wait for the others
            answers *= trainer.world_size
            torch.distributed.all_gather_object(answers, answers[trainer.global_rank])
        for answer in filter(None, answers):
            raise Reproduced(answer)

    def describe(self, trainer: pl.Trainer, batch_idx: int, finding: Finding) -> str:
        """One sentence: where it was found, and in which samples of this rank."""
        ids = sample_ids(trainer, batch_idx)
        shown = [ids[row] for row in finding.rows] if finding.rows else ids
        what = "samples" if finding.rows else "one of the samples"
        return (
            f"step {steps_done(trainer)}, batch {batch_idx} of epoch {trainer.current_epoch}: "
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
