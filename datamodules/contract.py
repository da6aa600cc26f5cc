"""What a run asks of its data: the whole contract, its defaults, and the check of what others wrote.

`DataSource` names everything that train.py, the command line, callbacks and exporters use. A part
that most data have no use for may be left out: `part` gives its default, and nothing is ever set
on the user's object.

N batch, M training samples, C channels, H height, W width, K classes.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader

from datamodules.findings import Finding
from preprocessing.inputs import Inputs, from_arrays, named

LOOKED_AT = 64  # training samples that are compared with input_spec before anything is trained


class DataSource(Protocol):
    """A LightningDataModule with these parts, all of which are there after `setup`."""

    # ---- what every source gives

    @property
    def class_names(self) -> list[str]:
        """K different names, in the order of the labels."""

    @property
    def input_spec(self) -> dict[str, Any]:
        """The inputs in the order in which a network takes them: {"inputs": [{"name", "dtype",
        "shape"}], "dynamic": {axis: [lowest, highest]}}, see `preprocessing.inputs`."""

    @property
    def fingerprint(self) -> str:
        """Differs for other data."""

    @property
    def train_targets(self) -> np.ndarray:
        """int64 [M], for class weights and the data check."""

    def network_arguments(self) -> dict[str, Any]:
        """What the data decide of a network: num_classes and the like by name."""

    def example_batch(self) -> tuple[dict[str, Tensor], Tensor]:
        """A few training samples, not augmented: inputs by name and targets int64 [N]."""

    def samples(
        self, split: str, limit: int | None = None
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Inputs by name and targets of "train", "val" or "test", not augmented; where limited, of
        every class its share."""

    def train_dataloader(self) -> DataLoader:
        """Batches (inputs by name, targets). Resumed to the bit if its `batch_sampler` has
        set_epoch, start_at and samples_in (see `samplers.TrainingBatches`)."""

    def val_dataloader(self) -> DataLoader:
        """Every sample once."""

    def test_dataloader(self) -> DataLoader:
        """Likewise."""

    # ---- what may be left out, see DEFAULTS

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How a file becomes the inputs, by "kind": image, text or arrays (see
        `preprocessing.reader`). Left out it is arrays, and a bundle then takes .npz files alone."""

    @property
    def normalisation(self) -> dict[str, list[float]] | None:
        """{"mean": [C], "std": [C]} of pixels in 0..1, for a single input `images` uint8
        [N,C,H,W]: the deployed model normalises it."""

    @property
    def files(self) -> dict[str, str]:
        """Name -> content of what the bundle brings along, made of the training data: a text's
        tokenizer.json. What brings any is not uploaded to W&B unasked."""

    determines: Sequence[str]  # names that network_arguments() gives; on the class, for the flags
    noun: str  # what one sample is called: "image"
    joins_labels: bool  # has --data.join_labels

    @property
    def findings(self) -> list[Finding]:
        """What was noticed when the data were read, in the order in which it is told."""

    @property
    def loading(self) -> list[str]:
        """How batches are loaded; known once the training loader is made."""

    @property
    def targets(self) -> dict[str, np.ndarray]:
        """int64 [M] of each split that is at hand."""

    def look(self, full: bool) -> list[Finding]:
        """What only a check of the data looks for; `full` reads every file once more."""

    def initialise(self, network: nn.Module) -> None:
        """Shows the training data to a new network."""

    def use_transform(self, transform: Callable[[Tensor, np.ndarray], Tensor]) -> None:
        """Takes the augmentation that --data.transform leads to."""
