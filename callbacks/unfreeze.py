"""Fine-tuning in two phases: first only the last layer learns, later everything.

While frozen, parameters get no gradient and BatchNorm keeps its statistics. The last layer is the
last one with parameters of its own, which in a classifier makes the logits.
"""

from typing import Annotated

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from callbacks.module_contract import Deployable, name_of


class Unfreeze(Callback):
    """Freezes all but the last layer until an epoch.

    Args:
        enabled: Whether to freeze at all.
        epoch: The first epoch in which everything learns.
    """

    def __init__(self, enabled: bool = False, epoch: Annotated[int, ">= 1"] = 1) -> None:
        self.epoch = epoch

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Freezes only now: DDP must have seen every parameter, or never averages its gradient."""
        if not isinstance(pl_module, Deployable):
            trainer.print(f"unfreeze: nothing is frozen, {name_of(pl_module)} has no deployed")
        elif trainer.current_epoch < self.epoch:
            wrapped = trainer.strategy.model
            if isinstance(wrapped, DistributedDataParallel) and not wrapped.find_unused_parameters:
                raise ValueError(
                    "--unfreeze.epoch: frozen layers get no gradient, which several processes "
                    "accept only with --strategy ddp_find_unused_parameters_true"
                )
            set_frozen(pl_module.deployed, True)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if isinstance(pl_module, Deployable) and trainer.current_epoch == self.epoch:
            set_frozen(pl_module.deployed, False)


def set_frozen(module: nn.Module, frozen: bool) -> None:
    """Freezes or frees all parameters but the last layer's, and all BatchNorm statistics."""
    layers = [part for part in module.modules() if list(part.parameters(recurse=False))]
    for part in layers[:-1]:
        for parameter in part.parameters(recurse=False):
            parameter.requires_grad_(not frozen)
        if isinstance(part, _BatchNorm):
            part.train(not frozen)
