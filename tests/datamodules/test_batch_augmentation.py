import numpy as np
import pytest
import torch

from datamodules.batch_augmentation import BatchAugmentation, beta_quantiles, boxes
from datamodules.random_draws import uniform_draws

NUM = 400


def draws(epoch: int = 0, num: int = NUM) -> torch.Tensor:
    samples = np.arange(num)
    return torch.from_numpy(uniform_draws(3, epoch, samples, BatchAugmentation.num_draws))


def noise(num: int = NUM, channels: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (num, channels, 12, 10)
    return torch.randint(1, 256, shape, generator=generator, dtype=torch.uint8)


def labels(num: int = NUM) -> torch.Tensor:
    return torch.arange(num) % 4


def test_off_by_default_and_unchanged():
    images, targets = BatchAugmentation()(noise(), labels(), draws(), 4)
    assert not BatchAugmentation().is_active
    assert torch.equal(images, noise())
    assert torch.equal(targets, labels())


@pytest.mark.parametrize("padding", [1, 3])
def test_padded_crop_equals_a_loop(padding):
    images, _ = BatchAugmentation(crop_padding=padding)(noise(), labels(), draws(), 4)
    padded = torch.nn.functional.pad(noise(), [padding] * 4)
    places = set()
    for n in range(NUM):
        row, column = (int(draw * (2 * padding + 1)) for draw in draws()[n, :2])
        places.add((row, column))
        assert torch.equal(images[n], padded[n, :, row : row + 12, column : column + 10])
    assert len(places) == (2 * padding + 1) ** 2  # every place occurs, independently a sample


def test_flip_takes_about_half_each_on_its_own():
    images, _ = BatchAugmentation(horizontal_flip=True)(noise(), labels(), draws(), 4)
    flipped = (images == noise().flip(3)).flatten(1).all(dim=1)
    plain = (images == noise()).flatten(1).all(dim=1)
    assert (flipped ^ plain).all()
    assert 0.4 < flipped.float().mean() < 0.6


def test_erasing_replaces_one_box_by_the_mean():
    images, _ = BatchAugmentation(erasing=0.5)(noise(), labels(), draws(), 4)
    changed = (images != noise()).any(dim=1)  # [N,H,W]
    assert 0.4 < changed.flatten(1).any(dim=1).float().mean() < 0.6
    sizes = set()
    for n in torch.nonzero(changed.flatten(1).any(dim=1)).flatten():
        rows, columns = torch.where(changed[n])
        box = images[n, :, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        mean = noise()[n].float().mean(dim=(1, 2)).round().to(torch.uint8)
        assert (box == mean[:, None, None]).all()
        sizes.add(tuple(box.shape[1:]))
    assert len(sizes) > 10


def test_mixup_mixes_images_and_targets_alike():
    images, targets = BatchAugmentation(mixup=0.4)(noise(), labels(), draws(), 4)
    assert targets.shape == (NUM, 4)
    assert torch.allclose(targets.sum(dim=1), torch.ones(NUM))
    share = targets[torch.arange(NUM), labels()]  # neighbours have another class
    expected = noise().float() * share[:, None, None, None]
    expected += noise().roll(1, 0).float() * (1 - share)[:, None, None, None]
    assert (images.float() - expected).abs().max() <= 0.51
    assert len(share.unique()) > NUM / 2


def test_cutmix_pastes_a_box_and_counts_its_pixels():
    images, targets = BatchAugmentation(cutmix=1.0)(noise(), labels(), draws(), 4)
    other = noise().roll(1, 0)
    own = (images == noise()).all(dim=1)
    assert (own | (images == other).all(dim=1)).all()
    share = targets[torch.arange(NUM), labels()]
    assert (share - own.float().mean(dim=(1, 2))).abs().max() < 1e-3
    assert 0.4 < share.mean() < 0.6


def test_mixup_and_cutmix_share_the_batch():
    images, targets = BatchAugmentation(mixup=1.0, cutmix=1.0)(noise(), labels(), draws(), 4)
    other = noise().roll(1, 0)
    pasted = ((images == noise()) | (images == other)).all(dim=1).flatten(1).all(dim=1)
    assert 0.35 < pasted.float().mean() < 0.65


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_shares_follow_the_beta_distribution(alpha):
    table = beta_quantiles(alpha).double().numpy()
    sample = np.random.default_rng(5).beta(alpha, alpha, 200_000)
    for power in (1, 2, 4):
        assert abs((table**power).mean() - (sample**power).mean()) < 0.004
    assert (np.diff(table) >= 0).all()


def test_what_happens_to_a_sample_does_not_depend_on_the_batch():
    augmentation = BatchAugmentation(crop_padding=2, horizontal_flip=True, erasing=0.5)
    whole, _ = augmentation(noise(), labels(), draws(), 4)
    part, _ = augmentation(noise()[100:150], labels()[100:150], draws()[100:150], 4)
    assert torch.equal(whole[100:150], part)
    again, _ = augmentation(noise(), labels(), draws(epoch=1), 4)
    assert not torch.equal(whole, again)


def test_boxes_stay_inside_and_have_the_size_asked_for():
    shares = torch.rand(NUM, generator=torch.Generator().manual_seed(0))
    places = torch.rand(NUM, 2, generator=torch.Generator().manual_seed(1))
    found = boxes(noise(), shares, shares.flip(0), places)
    assert torch.equal(found.any(dim=2).sum(dim=1), (shares * 12).round().long()
                       * (shares.flip(0) * 10).round().clamp(max=1).long())  # fmt: skip
