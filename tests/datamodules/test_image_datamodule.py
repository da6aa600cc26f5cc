import json
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import DoublePrecision, HalfPrecision, Precision

from datamodules.batch_augmentation import BatchAugmentation
from datamodules.contract import described
from datamodules.digits import Digits
from datamodules.findings import texts
from datamodules.image_datamodule import ImageDataModule
from datamodules.image_folder import ImageFolder
from datamodules.public_images import MNIST
from tests.datamodules.pictures import save_tree, write_mnist
from tests.tiny import TinyImages


def digits(tmp_path: Path, **arguments) -> ImageDataModule:
    return Digits(**arguments)


def mnist(tmp_path: Path, **arguments) -> ImageDataModule:
    return MNIST(str(write_mnist(tmp_path / "mnist", 300, 40)), **arguments)


def tree(tmp_path: Path, **arguments) -> ImageDataModule:
    root = save_tree(tmp_path / "tree", {"train/a": 30, "train/b": 25, "val/a": 7, "test/b": 5})
    return ImageFolder(str(root), cache_dir=str(tmp_path / "cache"), **arguments)


SOURCES = [digits, mnist, tree]


@pytest.mark.parametrize("source", SOURCES)
def test_the_data_contract(source, tmp_path):
    data = source(tmp_path, batch_size=16, seed=3)
    data.setup()
    inputs, targets = data.example_batch()
    images = inputs["images"]
    channels, height, width = images.shape[1:]
    assert images.dtype == torch.uint8
    assert targets.dtype == torch.int64
    assert len(images) == len(targets) >= 2
    assert described(data)["files"] == {}
    assert data.input_spec["inputs"] == [
        {"name": "images", "dtype": "uint8", "shape": ["batch", channels, height, width]}
    ]
    assert data.network_arguments() == {
        "num_classes": len(data.class_names),
        "in_channels": channels,
        "image_size": (height, width),
    }
    assert set(data.preprocessing) == {
        "kind", "channels", "height", "width", "resize", "resize_to",
    }  # fmt: skip
    for plain in (data.input_spec, data.preprocessing, data.normalisation, data.class_names):
        assert json.loads(json.dumps(plain)) == plain
    assert data.fingerprint == source(tmp_path, seed=3).fingerprint
    assert len(data.fingerprint) == 64
    assert data.train_targets.dtype == np.int64
    for batch in data.train_dataloader():
        inputs, targets = data.on_after_batch_transfer(batch, 0)
        images = inputs["images"]
        assert images.shape[1:] == (channels, height, width)
        assert images.dtype == torch.uint8


@pytest.mark.parametrize("source", SOURCES)
def test_evaluation_sees_every_sample_in_order(source, tmp_path):
    data = source(tmp_path, batch_size=16)
    for split, loader in (("val", data.val_dataloader()), ("test", data.test_dataloader())):
        batches = list(loader)
        images = torch.cat([inputs["images"] for inputs, _ in batches])
        targets = torch.cat([targets for _, targets in batches])
        inputs, expected = data.samples(split)
        assert np.array_equal(images.numpy(), inputs["images"])
        assert np.array_equal(targets.numpy(), expected)


@pytest.mark.parametrize("source", SOURCES)
def test_normalisation_is_exact(source, tmp_path):
    data = source(tmp_path)
    inputs, _ = data.samples("train")
    pixels = inputs["images"] / 255.0
    assert np.allclose(data.normalisation["mean"], pixels.mean(axis=(0, 2, 3)), atol=1e-12)
    assert np.allclose(data.normalisation["std"], pixels.std(axis=(0, 2, 3)), atol=1e-12)


def test_given_normalisation_is_used(tmp_path):
    data = tree(tmp_path, mean=[0.1, 0.2, 0.3], std=[1.0, 2.0, 3.0])
    assert data.normalisation == {"mean": [0.1, 0.2, 0.3], "std": [1.0, 2.0, 3.0]}


def epochs_of(data: ImageDataModule, *epochs: int) -> list[list[tuple[torch.Tensor, ...]]]:
    """The augmented batches of some epochs, out of one loader."""
    loader = data.train_dataloader()
    found = []
    for epoch in epochs:
        loader.batch_sampler.set_epoch(epoch)
        batches = (data.on_after_batch_transfer(batch, 0) for batch in loader)
        found.append([(inputs["images"], targets) for inputs, targets in batches])
    return found


AUGMENTED = {"crop_padding": 2, "horizontal_flip": True, "erasing": 0.5, "cutmix": 1.0,
             "color_jitter": 0.3, "affine_degrees": 9.0, "batch_size": 16}  # fmt: skip


@pytest.mark.slow
def test_augmentation_is_a_function_of_seed_and_epoch_for_any_number_of_workers(tmp_path):
    none, two = (tree(tmp_path, num_workers=workers, **AUGMENTED) for workers in (0, 2))
    alone = epochs_of(none, 0, 1)
    for batches, with_workers in zip(alone, epochs_of(two, 0, 1), strict=True):
        for (x, y), (x2, y2) in zip(batches, with_workers, strict=True):
            assert torch.equal(x, x2)
            assert torch.equal(y, y2)
    ((again, _), *_), *_ = epochs_of(tree(tmp_path, num_workers=0, **AUGMENTED), 1)
    assert torch.equal(alone[1][0][0], again)
    assert not torch.equal(alone[0][0][0], again)
    ((other, _), *_), *_ = epochs_of(tree(tmp_path, num_workers=0, seed=1, **AUGMENTED), 1)
    assert not torch.equal(other, again)


def test_soft_targets_where_images_are_mixed(tmp_path):
    images, targets = epochs_of(digits(tmp_path, batch_size=32), 0)[0][0]
    assert targets.dtype == torch.int64
    images, targets = epochs_of(mnist(tmp_path, batch_size=32, mixup=0.3), 0)[0][0]
    assert targets.shape == (32, 10)
    assert torch.allclose(targets.sum(dim=1), torch.ones(32))


def test_balanced_sampling_reaches_the_loader(tmp_path):
    root = save_tree(tmp_path / "p", {"train/a": 45, "train/b": 5, "val/a": 1, "test/a": 1})
    arguments = {"balanced_sampling": True, "batch_size": 10, "cache_dir": str(tmp_path / "c")}
    data = ImageFolder(str(root), **arguments)
    targets = torch.cat([targets for _, targets in epochs_of(data, 0)[0]])
    assert targets.bincount().tolist() == [25, 25]


def test_the_policy_is_told(tmp_path):
    data = digits(tmp_path)
    data.train_dataloader()
    assert str(data.policy) == "loading: 0 workers (samples are in memory)"
    data = mnist(tmp_path, rand_augment=5, num_workers=1, cache_dir=str(tmp_path / "c"))
    data.train_dataloader()
    assert "1 workers (as asked), prefetch 2, started by forkserver" in str(data.policy)


def test_iterating_a_loader_leaves_the_global_random_state(tmp_path):
    loader = digits(tmp_path).train_dataloader()
    before = torch.get_rng_state()
    next(iter(loader))
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_heavy_happens_in_the_constructor(tmp_path):
    data = MNIST(str(tmp_path / "nowhere"))
    assert isinstance(data, pl.LightningDataModule)


def test_what_the_user_should_know_is_returned_and_not_printed(tmp_path, capsys):
    """Label map, dropped samples and loader policy; train.py says them when training starts."""
    data = tree(tmp_path, batch_size=27)
    data.setup()
    capsys.readouterr()
    data.train_dataloader()
    assert texts(data.findings)[0] == "2 classes: 0 a, 1 b"
    assert data.loading == [
        "1 training image is left out of each epoch: too few for a batch",
        "loading: 0 workers (samples are in memory)",
    ]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "plugin", [HalfPrecision("bf16-true"), HalfPrecision("16-true"), DoublePrecision()]
)
@pytest.mark.parametrize(
    "augmentation",
    [
        BatchAugmentation(crop_padding=4),
        BatchAugmentation(horizontal_flip=True),
        BatchAugmentation(erasing=0.9),
        BatchAugmentation(mixup=0.4),
        BatchAugmentation(cutmix=1.0),
        BatchAugmentation(mixup=1.0, cutmix=1.0),
    ],
)
def test_lightnings_conversion_of_batches_leaves_the_draws(
    plugin: Precision, augmentation: BatchAugmentation
) -> None:
    """bf16 rounds one draw in 500 to 1, which is no place in any picture."""
    data = TinyImages(batch_size=480, num_train=480)
    data.batch_augmentation = augmentation
    batch = next(iter(data.train_dataloader()))
    expected = data.on_after_batch_transfer(batch, 0)
    with plugin.tensor_init_context():
        found = data.on_after_batch_transfer(plugin.convert_input(batch), 0)
    assert torch.equal(found[0]["images"], expected[0]["images"])
    assert torch.equal(found[1], expected[1])
