import numpy as np
import pytest
import torch

from datamodules.random_draws import own_draws, sample_keys
from datamodules.sample_augmentation import SampleAugmentation

KINDS = [
    {"random_resized_crop": 0.3},
    {"affine_degrees": 20.0},
    {"color_jitter": 0.5},
    {"rand_augment": 9},
]


def noise(num: int = 6, channels: int = 3) -> np.ndarray:
    smooth = np.linspace(0, 255, 16 * 16).reshape(16, 16)
    random = np.random.default_rng(0).integers(0, 255, (num, channels, 1, 1))
    return ((smooth + random) % 256).astype(np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("arguments", KINDS)
def test_each_image_depends_on_its_own_key_only(arguments, channels):
    augmentation = SampleAugmentation(**arguments)
    images, keys = noise(channels=channels), sample_keys(0, 0, np.arange(6))
    whole = augmentation(images, keys, (16, 16))
    assert whole.shape == (6, channels, 16, 16)
    assert whole.dtype == torch.uint8
    assert torch.equal(augmentation(images[4:], keys[4:], (16, 16)), whole[4:])
    other_epoch = augmentation(images, sample_keys(0, 1, np.arange(6)), (16, 16))
    assert not torch.equal(other_epoch, whole)


@pytest.mark.parametrize("arguments", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_default_format_of_numbers_changes_nothing(arguments, dtype):
    augmentation, keys = SampleAugmentation(**arguments), sample_keys(0, 0, np.arange(6))
    images = noise()
    expected = augmentation(images, keys, (16, 16))
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        found = augmentation(images, keys, (16, 16))
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(found, expected)


def test_random_resized_crop_makes_one_size_of_many():
    images = [np.zeros((3, 20, 30), np.uint8), np.zeros((3, 9, 9), np.uint8)]
    keys = sample_keys(0, 0, np.arange(2))
    out = SampleAugmentation(random_resized_crop=0.5)(images, keys, (8, 12))
    assert out.shape == (2, 3, 8, 12)


def test_the_global_random_state_stays():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    SampleAugmentation(color_jitter=0.5)(noise(), sample_keys(0, 0, np.arange(6)), (16, 16))
    assert torch.equal(torch.get_rng_state(), before)


def test_inactive_by_default():
    assert not SampleAugmentation().is_active
    assert SampleAugmentation(color_jitter=0.1).is_active


def test_an_own_transform_comes_last_with_draws_of_its_sample() -> None:
    def shift(image: torch.Tensor, draws: np.ndarray) -> torch.Tensor:
        return image // 2 + int(100 * draws[0])

    images, keys = noise(), sample_keys(0, 0, np.arange(6))
    found = SampleAugmentation(own=shift)(images, keys, (16, 16))
    expected = [
        i // 2 + int(100 * d) for i, d in zip(images, own_draws(keys, 1)[:, 0], strict=True)
    ]
    np.testing.assert_array_equal(found.numpy(), np.stack(expected))
    part = SampleAugmentation(own=shift)(images[4:], keys[4:], (16, 16))
    assert torch.equal(part, found[4:])
    both = SampleAugmentation(random_resized_crop=0.5, own=shift)(images, keys, (8, 8))
    assert both.shape == (6, 3, 8, 8)
