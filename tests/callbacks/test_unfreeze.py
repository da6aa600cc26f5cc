from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from callbacks.unfreeze import Unfreeze, set_frozen
from tests.tiny import TinyImages, tiny_classifier


def trainable(module: nn.Module) -> list[str]:
    return [name for name, p in module.named_parameters() if p.requires_grad]


class Deployed(nn.Sequential):
    """A module that is exported itself."""

    description: dict[str, Any] = {}

    @property
    def deployed(self) -> nn.Module:
        return self


def network() -> nn.Sequential:
    return Deployed(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))


def test_all_but_the_last_layer_is_frozen_and_freed():
    module = network()
    set_frozen(module, True)
    assert trainable(module) == ["3.weight", "3.bias"]
    assert not module[1].training
    before = module[1].running_mean.clone()
    module(torch.randn(4, 1, 4, 4))
    assert torch.equal(module[1].running_mean, before)
    set_frozen(module, False)
    assert len(trainable(module)) == len(list(module.parameters()))
    assert module[1].training


@pytest.mark.parametrize(
    ("start", "epoch", "frozen"),
    [(0, 1, True), (0, 2, True), (1, 1, False), (2, 3, True), (5, 2, False)],
)
def test_a_resumed_run_freezes_as_an_uninterrupted_one(start, epoch, frozen):
    module = network()
    trainer = SimpleNamespace(current_epoch=start, strategy=SimpleNamespace(model=module))
    callback = Unfreeze(True, epoch)
    callback.on_train_start(trainer, module)
    callback.on_train_epoch_start(trainer, module)
    assert (len(trainable(module)) == 2) == frozen


def test_several_processes_need_the_strategy_that_allows_it(monkeypatch):
    wrapped = DistributedDataParallel.__new__(DistributedDataParallel)
    nn.Module.__init__(wrapped)
    wrapped.find_unused_parameters = False
    trainer = SimpleNamespace(current_epoch=0, strategy=SimpleNamespace(model=wrapped))
    with pytest.raises(ValueError, match="--strategy ddp_find_unused_parameters_true"):
        Unfreeze(True, 1).on_train_start(trainer, network())
    wrapped.find_unused_parameters = True
    Unfreeze(True, 1).on_train_start(trainer, network())


def test_without_a_deployed_module_nothing_is_frozen() -> None:
    said: list[str] = []
    trainer: Any = SimpleNamespace(current_epoch=0, print=said.append)
    module: Any = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    Unfreeze(True, 1).on_train_start(trainer, module)
    Unfreeze(True, 1).on_train_epoch_start(trainer, module)
    assert len(trainable(module)) == 4
    assert said == ["unfreeze: nothing is frozen, Sequential has no deployed"]


class Watch(pl.Callback):
    """Copies the weights and BatchNorm statistics after each epoch."""

    def __init__(self) -> None:
        self.states: list[dict[str, torch.Tensor]] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        state = pl_module.model.network.state_dict()
        self.states.append({name: value.clone() for name, value in state.items()})


def test_a_fit_moves_the_backbone_only_after_the_epoch():
    data = TinyImages()
    module = tiny_classifier(data)
    first = {name: value.clone() for name, value in module.model.network.state_dict().items()}
    watch = Watch()
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", callbacks=[Unfreeze(True, 2), watch], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    history = [first, *watch.states]
    for name in first:
        moved = [
            not torch.equal(a[name], b[name]) for a, b in zip(history, history[1:], strict=False)
        ]
        assert moved == ([True] * 3 if name.startswith("head.") else [False, False, True]), name
