"""A DataLoader that decides nothing before its first batch is asked for.

Lightning makes the first iterator before it has told the sampler the epoch, and a plain DataLoader
with workers draws batches at once: a resumed run would begin with those of another epoch.
"""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader


class LazyLoader(DataLoader):
    """Batches as of DataLoader, in the order that the sampler has when the first one is taken."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator on purpose
        yield from super().__iter__()
