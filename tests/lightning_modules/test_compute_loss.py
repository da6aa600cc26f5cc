"""A further loss, by overriding one method, is used alike wherever a loss is computed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from callbacks.finite_differences import check_gradients
from callbacks.first_non_finite import find_first_non_finite
from callbacks.gradient_check import run_uncompiled
from callbacks.lr_finder import LRFinder
from callbacks.replay import Replay, Reproduced
from lightning_modules.classifier import Classifier
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer

CPU = torch.device("cpu")


class WithPenalty(Classifier):
    """Cross-entropy, and a penalty on the head's weights for each sample."""

    penalty: Any = staticmethod(lambda weights: weights.square().sum())

    def compute_loss(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        losses, outcomes = super().compute_loss(batch)
        return losses + 10 + self.penalty(self.model.network.head.weight), outcomes


class WrongSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square().sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * ctx.saved_tensors[0]  # not twice it


def module_with(penalty: Any = None, **settings: Any) -> Any:
    module = tiny_classifier(TinyImages(), **settings)
    module.__class__ = WithPenalty
    if penalty is not None:
        module.penalty = penalty
    return module


def test_training_minimises_it(tmp_path: Path) -> None:
    sgd = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    data = TinyImages()
    trained, plain = module_with(optimizer=sgd), tiny_classifier(data, optimizer=sgd)
    before = plain.model.network.head.weight.detach().clone()
    for module in (trained, plain):
        tiny_trainer(tmp_path, max_steps=1).fit(module, datamodule=TinyImages())
    heads = [module.model.network.head.weight for module in (trained, plain)]
    torch.testing.assert_close(heads[0] - heads[1], -0.1 * 2 * before)
    # what is logged is the outcome, which it left as it was
    assert trained.reports["train"].scalars["loss"] < 5


def test_the_rate_finder_goes_by_it(tmp_path: Path) -> None:
    found: list[list[float]] = []

    class Notes(LRFinder):
        def record(self, trainer: Any, losses: Any) -> None:
            found.append(list(losses))

    data = TinyImages(num_train=160)
    module = module_with(optimizer={"lr": "auto"})
    tiny_trainer(tmp_path, callbacks=[Notes(TinyRun(), num_steps=12)], max_steps=1).fit(
        module, data
    )
    assert min(found[0]) > 10


def test_the_gradient_check_looks_into_it() -> None:
    data = TinyImages()
    assert check_gradients(module_with(), data.example_batch(), CPU) == []
    with pytest.raises(ValueError, match=r"gradients of .*network\.head\.weight"):
        check_gradients(module_with(WrongSquare.apply), data.example_batch(), CPU)


def test_its_run_without_the_compiler_is_the_same_loss() -> None:
    seen: list[int] = []
    module = module_with(lambda weights: seen.append(1) or weights.sum())
    run_uncompiled(module, TinyImages().example_batch())
    assert seen == [1]


def test_a_replay_finds_the_fault_in_it(tmp_path: Path) -> None:
    data = TinyImages()
    module = module_with(lambda weights: (weights - weights).sum().log())
    finding = find_first_non_finite(module, data.example_batch())
    assert str(finding).startswith("loss pass of the loss, operation AddBackward0")
    trainer = tiny_trainer(tmp_path, callbacks=[Replay(0, 2)])
    with pytest.raises(Reproduced, match="step 0, batch 0 of epoch 0: .* in the loss pass of the"):
        trainer.fit(module, datamodule=data)


def test_a_module_without_it_is_not_replayed(tmp_path: Path) -> None:
    import pytorch_lightning as pl

    trainer: Any = None
    with pytest.raises(ValueError, match="LightningModule has no compute_loss, without which no"):
        Replay(0, 2).on_fit_start(trainer, pl.LightningModule())


def test_a_copy_of_a_module_in_training_has_no_trainer(tmp_path: Path) -> None:
    """Those that need a copy take one of the whole module; its names lose the module's prefix."""

    class Looks(Replay):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            lines = check_gradients(pl_module, trainer.datamodule.example_batch(), CPU)
            assert lines == [
                "no gradient reaches network.unused.weight, network.unused.bias: unused or "
                "detached in the forward pass"
            ]
            assert pl_module.trainer is trainer

    module = tiny_classifier(TinyImages())
    module.model.network.unused = torch.nn.Linear(1, 1)
    tiny_trainer(tmp_path, callbacks=[Looks(0, 2)], max_steps=1).fit(module, TinyImages())
