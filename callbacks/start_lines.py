"""Says what is only known when training starts."""

from collections.abc import Callable, Iterable

import pytorch_lightning as pl


class StartLines(pl.Callback):
    """Prints lines once, on rank 0, before the first step.

    Args:
        lines: Makes them; called when loaders and everything else are there.
    """

    def __init__(self, lines: Callable[[], Iterable[str]]) -> None:
        self.lines = lines

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for line in self.lines():
            trainer.print(line)
