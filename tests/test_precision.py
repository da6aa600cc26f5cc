"""Every number format that --precision takes trains pictures and texts, with all that rounds."""

import typing
from pathlib import Path

import pytest
import torch

from callbacks.ema import EMA
from callbacks.gradient_check import GradientCheck
from callbacks.lr_finder import LRFinder
from callbacks.non_finite import NonFinite
from cli.checks import adapt_to_cpu
from cli.flags import Precision
from datamodules.batch_augmentation import BatchAugmentation
from datamodules.text_files import TextFiles
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer
from tests.tiny_sources import write_texts

pytestmark = pytest.mark.slow

CASES = [(precision, "small_cnn") for precision in typing.get_args(Precision)]
CASES += [
    (precision, network)
    for precision in ("bf16-mixed", "bf16-true", "64-true")  # what the others come to on a CPU
    for network in ("text_cnn", "bilstm", "text_transformer", "bag_of_embeddings")
]
LOSS = {"class_weights": "balanced", "label_smoothing": 0.1}
SMALL = {
    "small_cnn": {"dropout": 0.1},
    "text_cnn": {"num_filters": 4},
    "bilstm": {"hidden_features": 4},
    "text_transformer": {"num_layers": 1, "features": 16},
    "bag_of_embeddings": {"embedding_dim": 4},
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> TextFiles:
    folder = tmp_path_factory.mktemp("texts")
    root = write_texts(folder / "given", "{label}/{number}.txt")
    return TextFiles(str(root), batch_size=8, num_workers=0, cache_dir=str(folder / "cache"))


def images() -> TinyImages:
    data = TinyImages(num_train=32)
    data.batch_augmentation = BatchAugmentation(1, True, 0.5, 0.4, 0.4)
    return data


@pytest.mark.parametrize(("precision", "network"), CASES)
def test_every_precision_trains(
    tmp_path: Path, texts: TextFiles, precision: str, network: str
) -> None:
    configuration = {"accelerator": "cpu", "sync_batchnorm": False, "precision": precision}
    adapt_to_cpu(configuration)
    data = images() if network == "small_cnn" else texts
    data.setup()
    model = tiny_classifier(data, network, SMALL.get(network), {"lr": "auto"}, loss=LOSS)
    run = TinyRun(tmp_path)
    check = GradientCheck(run, every_n_steps=1)
    finder = LRFinder(run, num_steps=10, min_batches=1)
    trainer = tiny_trainer(
        tmp_path,
        precision=configuration["precision"],
        callbacks=[finder, NonFinite(every_n_steps=1), check, EMA(enabled=True)],
        limit_train_batches=3,
        limit_val_batches=1,
    )
    trainer.fit(model, datamodule=data)
    assert trainer.global_step == 3
    trainer.test(model, datamodule=data, verbose=False)
    assert model.reports["test"].scalars["loss"] > 0
    wanted = {"bf16-true": torch.bfloat16, "64-true": torch.float64}
    found = next(model.model.parameters()).dtype
    assert found == wanted.get(trainer.precision, torch.float32)
