"""What the datamodules of images and of texts share: loaders of whole batches, and small samples.

Lightning makes the first iterator before it has told the sampler the epoch, and a plain DataLoader
with workers draws batches at once: a resumed run would begin with those of another epoch.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from datamodules.loader_policy import LoaderPolicy, decide_loader_policy
from datamodules.splits import stratified_subset
from datamodules.stalls import NotedBatches, StallWatch
from datamodules.wording import quantity
from tasks.base import Task

EXAMPLE_SIZE = 8


class LazyLoader(DataLoader):
    """Batches as of DataLoader, in the order that the sampler has when the first one is taken."""

    watch: StallWatch | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator on purpose
        yield from self.watched(super().__iter__())

    def watched(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Batches of this loader's data; a word is said where none comes for long."""
        return iter(batches) if self.watch is None else self.watch.watched(iter(batches))


class LazyLoading(pl.LightningDataModule):
    """A datamodule's loaders, what is said of them, and batches that need no loader.

    Args:
        timeout: Seconds without a batch until a line says which sample is waited for.
        on_timeout: Whether it then waits on, or stops training with a checkpoint.

    Raises:
        ValueError: The time is not above zero.
    """

    noun: str  # what a sample is called
    num_workers: int | None
    seed: int
    policy: LoaderPolicy  # of the loader made last
    loading: Sequence[str] = ()  # what is said of the training loader, once it is made

    def __init__(
        self, timeout: float = 300.0, on_timeout: Literal["wait", "stop"] = "wait"
    ) -> None:
        super().__init__()
        self.timeout = timeout
        self.on_timeout = on_timeout

    def describe_sample(self, dataset: Any, row: int) -> str:
        """A sample of a split for the eye."""
        return f"sample {row}"

    def _ranks(self) -> tuple[int, int]:
        """How many there are, and this one's number."""
        if self.trainer is None:
            return 1, 0
        return self.trainer.world_size, self.trainer.global_rank

    def check_ranks(self, sizes: Mapping[str, int]) -> None:
        """Refuses splits, by their names, that leave a rank without a sample.

        Raises:
            ValueError: Lightning would skip the evaluation on that rank, and the others would wait
                for it for ever.
        """
        world_size, _ = self._ranks()
        for name, size in sizes.items():
            if size < world_size:
                raise ValueError(
                    f"{name} has {quantity(size, self.noun)}, but {world_size} processes need at "
                    "least one each; lower --devices, or give the split more"
                )

    def _is_overfitting(self) -> bool:
        """Whether the same few training batches are asked for in every epoch and validation."""
        return getattr(self.trainer, "overfit_batches", 0) > 0

    def _loader(
        self, dataset: Any, sampler: Sampler[Any], in_memory: bool, batch_bytes: int
    ) -> DataLoader:
        """A loader of the sampler's batches; the last two arguments are the policy's.

        Raises:
            ValueError: A rank would get no sample.
        """
        trainer = self.trainer
        self.check_ranks({"a split": len(dataset)})
        self.policy = decide_loader_policy(
            in_memory=in_memory,
            on_gpu=trainer is not None and trainer.strategy.root_device.type == "cuda",
            ranks_on_node=1 if trainer is None else trainer.num_devices,
            num_workers=self.num_workers,
            batch_bytes=batch_bytes,
        )
        watch = StallWatch(
            self.policy.num_workers,
            self.timeout,
            self.on_timeout == "stop",
            partial(self.describe_sample, dataset),
        )
        loader = LazyLoader(
            NotedBatches(dataset),
            batch_sampler=sampler,
            collate_fn=keep_batch,
            worker_init_fn=watch.worker_init,
            # its own generator: a loader draws its base seed when iterated, and must not move
            # the global random state
            generator=torch.Generator().manual_seed(self.seed),
            **self.policy.loader_arguments(),
        )
        loader.watch = watch
        return loader

    def train_dataloader(self) -> DataLoader:
        loader = self.train_loader()
        count = loader.batch_sampler.num_dropped  # type: ignore[union-attr]
        left_out = f"{count:,} training {self.noun}" + (" is" if count == 1 else "s are")
        dropped = f"{left_out} left out of each epoch: too few for a batch"
        self.loading = [*([dropped] if count else []), str(self.policy)]
        return loader

    # ---- the data contract -------------------------------------------------------------

    @property
    @abstractmethod
    def split_targets(self) -> dict[str, np.ndarray]:
        """int64 [M] of each split."""

    @property
    def train_targets(self) -> np.ndarray:
        """int64 [M], for class weights."""
        return self.split_targets["train"]

    @abstractmethod
    def train_loader(self) -> DataLoader:
        """Training's batches."""

    @abstractmethod
    def inputs_of(self, split: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Inputs by name of some samples, not augmented."""

    def example_batch(self) -> tuple[dict[str, Tensor], Tensor]:
        """A few training samples in batch form."""
        inputs, targets = self.samples("train", EXAMPLE_SIZE)
        return {name: torch.from_numpy(x) for name, x in inputs.items()}, torch.from_numpy(targets)

    @property
    @abstractmethod
    def task(self) -> Task:
        """What a target means."""

    def samples(
        self, split: str, limit: int | None = None
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Inputs by name and targets of a split, not augmented; stratified where limited."""
        targets = self.split_targets[split]
        rows = stratified_subset(self.task.strata(targets), limit)
        return self.inputs_of(split, rows), targets[rows]


def keep_batch(batch: Any) -> Any:
    """The collate function of datasets that already return whole batches."""
    return batch
