"""What a forker writes: LightningModules of another kind, given by their import paths."""

import os
import signal
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.batch import Batch, tensors_of
from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.classifier import Classifier
from lightning_modules.deployed import load_deployed
from lightning_modules.losses import single_label_outcomes


class TwoOptimizers(pl.LightningModule):
    """A network learns against another one, which disturbs its pictures.

    Args:
        model: uint8 [N,1,H,W] -> logits [N,K].
        strength: Largest change of a pixel, of 255.
        rate: Of both optimizers.
    """

    def __init__(self, model: nn.Module, strength: float = 8.0, rate: float = 2e-3) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.classifier = model
        self.attacker = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1), nn.Tanh()
        )
        self.strength = strength
        self.rate = rate

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        attacker = torch.optim.SGD(self.attacker.parameters(), self.rate, momentum=0.9)
        return [torch.optim.AdamW(self.classifier.parameters(), self.rate), attacker]

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        inputs, targets = batch
        images = tensors_of(inputs)[0].float()
        defends, attacks = self.optimizers()  # type: ignore[attr-defined]
        disturbed = images + self.strength * self.attacker(images / 255)
        for optimizer, sign in ((attacks, -1), (defends, 1)):
            loss = F.cross_entropy(self.classifier(disturbed), targets)
            optimizer.zero_grad()
            self.manual_backward(sign * loss, retain_graph=sign < 0)
            disturbed = disturbed.detach()
            optimizer.step()
        self.log("train/loss", loss, on_epoch=True, on_step=False)

    def validation_step(self, batch: Batch, batch_idx: int, split: str = "val") -> None:
        inputs, targets = batch
        logits = self.classifier(*tensors_of(inputs))
        self.log(f"{split}/cross_entropy", F.cross_entropy(logits, targets))
        self.log(f"{split}/hits", (logits.argmax(1) == targets).float().mean())

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx, "test")


class Untested(TwoOptimizers):
    """Has no test_step."""

    test_step = pl.LightningModule.test_step


class Distilled(Classifier):
    """A network learns from the answers of a trained one, too (Hinton et al. 2015).

    Args:
        teacher: Checkpoint of a network with the same inputs and classes.
        share: Of its answers in the loss.
        temperature: Softens both networks' probabilities.
    """

    def __init__(
        self,
        *arguments: Any,
        teacher: str,
        share: float = 0.5,
        temperature: float = 2.0,
        **others: Any,
    ) -> None:
        super().__init__(*arguments, **others)
        self.teacher = load_deployed(read_checkpoint(teacher)).requires_grad_(False)
        self.share = share
        self.temperature = temperature

    def compute_loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        inputs, targets = batch
        logits = self.model(*tensors_of(inputs))
        wanted = self.teacher.eval()(*tensors_of(inputs))
        distances = F.kl_div(
            (logits / self.temperature).log_softmax(1),
            (wanted / self.temperature).log_softmax(1),
            reduction="none",
            log_target=True,
        ).sum(1)
        labelled = self.criterion(logits, targets)
        losses = (1 - self.share) * labelled + self.share * self.temperature**2 * distances
        return losses, single_label_outcomes(logits.detach(), targets, losses.detach())


class KillOnce(pl.Callback):
    """Sends SIGTERM to its own process after a batch, unless the run was resumed.

    Args:
        batch: From 1, over all epochs.
        at_once: Ends it instead, without a word and with exit code 77.
    """

    def __init__(self, batch: int = 0, at_once: bool = False) -> None:
        self.batch = batch
        self.at_once = at_once
        self.num_batches = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.num_batches += 1
        if self.num_batches == self.batch and trainer.ckpt_path is None:
            if self.at_once:
                os._exit(77)
            os.kill(os.getpid(), signal.SIGTERM)
