"""Collects a small row for each sample of an epoch, on the device and without waiting for it.

What stands in a row is the task's affair; here it is W fields of 4 bytes.

N batch, K outputs, M samples of an epoch.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from tasks.outcomes import canonical_order

CAPACITY = 2**16  # rows on the device; when they are full they move to the host
MAX_SCORES = 2**24  # kept of an epoch: 64 MiB


class OutcomeBuffer:
    """The outcomes of an epoch so far on this rank.

    Args:
        row: The task's structured dtype.
        num_outputs: K.
        keeps_scores: Whether to keep the scores of all outputs too.
    """

    def __init__(self, row: np.dtype, num_outputs: int, keeps_scores: bool = False) -> None:
        self.row = row
        self.names: tuple[str, ...] = row.names or ()
        self.fields = [(i, name, row[name].kind == "f") for i, name in enumerate(self.names)]
        self.num_outputs = num_outputs
        self.keeps_scores = keeps_scores
        self.reset()

    def reset(self) -> None:
        """Forgets everything."""
        self.newest: Tensor | None = None  # int32 [W,CAPACITY], of which so many are used:
        self.num_newest = 0
        self.moved: list[Tensor] = []  # int32 [W,...] on the host
        self.moved_are_finite: list[Tensor] = []
        self.scores: list[Tensor] = []  # float32 [N,K] on the host

    def expect(self, num_samples: int | None) -> str | None:
        """Keeps no scores where there will be too many; the reason, if that is news.

        Args:
            num_samples: Of the epoch on all ranks; None is not known.
        """
        if num_samples is not None and num_samples * self.num_outputs <= MAX_SCORES:
            return None
        kept, self.keeps_scores = self.keeps_scores, False
        size = "an unknown number of" if num_samples is None else f"{num_samples:,}"
        limit = f"at most {MAX_SCORES:,} scores are kept"
        return f"{size} samples x {self.num_outputs:,} outputs ({limit})" if kept else None

    @torch.no_grad()
    def add(self, columns: Mapping[str, Tensor]) -> None:
        """Takes a batch.

        Args:
            columns: A tensor [N] for each field of the row, and "scores" float32 [N,K] where they
                are kept.
        """
        first = columns[self.names[0]]
        rows = self._free_rows(len(first), first.device)
        as_floats = rows.view(torch.float32)
        for index, name, is_float in self.fields:
            (as_floats if is_float else rows)[index].copy_(columns[name])
        if self.keeps_scores:
            self.scores.append(columns["scores"].to("cpu", non_blocking=True))

    def _free_rows(self, count: int, device: torch.device) -> Tensor:
        """int32 [W,count] to write to."""
        if self.newest is None or self.num_newest + count > self.newest.shape[1]:
            self._move_newest()
            size = (len(self.names), max(CAPACITY, count))
            self.newest = torch.empty(size, dtype=torch.int32, device=device)
        first, self.num_newest = self.num_newest, self.num_newest + count
        return self.newest[:, first : self.num_newest]

    def _move_newest(self) -> None:
        if self.newest is not None and self.num_newest:
            rows = self.newest[:, : self.num_newest]
            self.moved_are_finite.append(self._are_finite(rows))
            # later work of the same device waits for the copy, the host reads it after one that it
            # waits for itself
            self.moved.append(rows.to("cpu", non_blocking=True))
        self.newest, self.num_newest = None, 0

    def losses_are_finite(self) -> bool:
        """Whether every loss of this rank is; one value is read from the device."""
        found = list(self.moved_are_finite)
        if self.newest is not None:
            found.append(self._are_finite(self.newest[:, : self.num_newest]))
        return not found or bool(torch.stack(found).all())

    def _are_finite(self, rows: Tensor) -> Tensor:
        """bool [], of the losses of int32 [W,...]."""
        return rows[self.names.index("loss")].view(torch.float32).isfinite().all()

    # ---- the epoch over all ranks ------------------------------------------------------

    def collect(self, device: torch.device) -> tuple[np.ndarray, np.ndarray | None]:
        """The rows of all ranks in canonical order, as the task's [M], and their scores float32
        [M,K] where they are kept; every rank has to ask."""
        rows = self._all_rows(device)
        scores = None
        if self.keeps_scores:
            empty = torch.empty((0, self.num_outputs), dtype=torch.float32)
            scores = _gather(torch.cat([empty, *self.scores]), device)
        parts = [rows] if scores is None else [rows, scores.view(np.int32)]
        order = canonical_order(np.hstack(parts))
        if scores is not None:
            scores = scores[order]
        return rows[order].view(self.row)[:, 0], scores

    def state(self, device: torch.device) -> Tensor:
        """int32 [M,W], the rows of all ranks in canonical order; every rank has to ask."""
        rows = self._all_rows(device)
        return torch.from_numpy(rows[canonical_order(rows)])

    def restore(self, rows: Tensor) -> None:
        """Goes on from earlier rows, as `state` gave them."""
        self.reset()
        self.moved.append(rows.T)

    def _all_rows(self, device: torch.device) -> np.ndarray:
        newest = [] if self.newest is None else [self.newest[:, : self.num_newest].cpu()]
        empty = torch.empty((len(self.names), 0), dtype=torch.int32)
        return _gather(torch.cat([empty, *self.moved, *newest], dim=1).T, device)


def _gather(values: Tensor, device: torch.device) -> np.ndarray:
    """[M of this rank,W] -> [M,W]."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        values = torch.cat(gather_all_tensors(values.to(device))).cpu()
    return values.contiguous().numpy()
