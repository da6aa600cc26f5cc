"""Pictures in a folder tree, an archive of one, or a CSV table of paths and labels."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from datamodules.archives import is_archive, unpacked
from datamodules.cache_folder import cache_folder
from datamodules.findings import Finding, note
from datamodules.full_check import CHECK_FORMAT, remembered
from datamodules.image_check import read_pictures
from datamodules.image_datamodule import ImageDataModule
from datamodules.image_layout import list_folder
from datamodules.image_listing import ImageListing, ListedImages
from datamodules.image_plan import PlanOptions, make_plan
from datamodules.image_splits import ImageSplits, checked_fraction, cut_off
from datamodules.image_table import list_table
from datamodules.packed_images import FileImages, ImageSet, PackedImages
from datamodules.pixel_cache import decode_once, files_key
from datamodules.wording import quantity

DEFAULT_TEST_FRACTION = 0.15


class ImageFolder(ImageDataModule):
    """Pictures sorted into classes.

    Args:
        root: A folder `train/<class>/…` with val and test beside train, a folder `<class>/…`, a
            .tar, .tar.gz or .zip of either, or a .csv with the columns path and label.
        splits: auto finds train, val and test by their names; none takes every folder for a class.
        image_size: Side of the network's input; None takes the pictures' own common size.
        channels: 1 for grey, 3 for colour.
        resize: exact stretches to the size; resize_crop scales the shorter side and cuts the
            middle; auto leaves pictures of one common size alone and else does as resize_crop.
        resize_to: The shorter side before that cut; None is 256 / 224 of the size.
        levels: Lowest and highest value of pictures of more than 8 bits, which become 0 and 255;
            None finds them in some training pictures.
        weights: Pretrained torchvision weights whose size, mean and std are taken over, for
            example ResNet50_Weights.IMAGENET1K_V2.
        test_fraction: Share of train that becomes test where the source has none; None is 0.15.
        skip_unreadable: Leaves unreadable pictures out, instead of stopping.
        cache_gigabytes: Decoded pixels are kept up to this size; more is decoded in workers.
        common: Everything else, see ImageDataModule.
    """

    def __init__(
        self,
        root: str | None = None,
        splits: Literal["auto", "none"] = "auto",
        image_size: Annotated[int, ">= 1"] | None = None,
        channels: Literal[1, 3] = 3,
        resize: Literal["auto", "exact", "resize_crop"] = "auto",
        resize_to: Annotated[int, ">= 1"] | None = None,
        levels: list[int] | None = None,
        weights: str | None = None,
        test_fraction: Annotated[float, "0 < x < 1"] | None = None,
        skip_unreadable: bool = False,
        cache_gigabytes: Annotated[float, ">= 0"] = 8.0,
        **common: Any,
    ) -> None:
        super().__init__(root, **common)
        if root is None:
            raise ValueError("image_folder needs --data.root: a folder, an archive or a .csv table")
        self.source = Path(root)
        self.named_splits = splits
        self.asked = PlanOptions(image_size, channels, resize, resize_to, levels=levels)
        self.test_fraction = checked_fraction("test", test_fraction, DEFAULT_TEST_FRACTION)
        self.given_fractions = {"val": common.get("val_fraction"), "test": test_fraction}
        self.skip_unreadable = skip_unreadable
        self.cache_gigabytes = cache_gigabytes
        self.taken: list[Finding] = []
        if weights is not None:
            self._take_over(weights)

    def load(self) -> ImageSplits:
        cache = cache_folder(self.cache_dir)
        listing = self.find_images(cache)
        train_images = listing.splits["train"]
        plan = make_plan(train_images, self.asked)
        self.plan, findings = plan.settings, [*listing.findings, *self.taken, *plan.findings]
        recrops = bool(self.sample_augmentation.random_resized_crop) and not plan.is_native
        pack = self._fits_cache(listing, cache)
        sets: dict[str, ImageSet] = {}
        for split, images in listing.splits.items():
            # training pictures that are cropped anew each time are packed only if val is in them
            needless = split == "train" and recrops and "val" in listing.splits
            sets[split], found = decode_once(
                images, self.plan, pack and not needless, cache, self.skip_unreadable
            )
            findings += [one.within(split) for one in found]
        for split, fraction in (("test", self.test_fraction), ("val", self.val_fraction)):
            if split not in sets:
                sets["train"], sets[split] = cut_off(sets["train"], fraction, self.seed)
                count = quantity(len(sets[split]), "picture")
                findings.append(note(f"{split}: {count} of train, chosen by seed"))
            elif (given := self.given_fractions[split]) is not None:
                findings.append(
                    note(f"--data.{split}_fraction {given} is not used: {split} is given")
                )
        train = sets["train"]
        if recrops and isinstance(train, PackedImages) and train.rows is not None:
            paths = train_images.paths[train.rows]
            train = FileImages(paths, train.targets, self.plan, train.hashes)
        return ImageSplits(listing.class_names, train, sets["val"], sets["test"], findings)

    @property
    def preprocessing(self) -> dict[str, Any]:
        self.setup()
        return dict(self.plan)

    def look(self, full: bool) -> list[Finding]:
        """Also every file, if `full`."""
        found = super().look(full)
        if full:
            cache = cache_folder(self.cache_dir)
            parts = self.find_images(cache).splits.values()
            listed = ListedImages(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
            key = files_key(listed, {"fingerprint": self.fingerprint, "format": CHECK_FORMAT})
            again = remembered(cache / "checks" / key, lambda: read_pictures(listed, self.plan))
            found += [f for f in again if not (self.skip_unreadable and f.severity == "error")]
        return found

    def find_images(self, cache: Path) -> ImageListing:
        """Lists the pictures of folder, archive or table.

        Raises:
            FileNotFoundError: There is nothing at --data.root.
            ValueError: It is neither of the three.
        """
        root = self.source
        if root.is_dir():
            return list_folder(root, self.named_splits)
        if not root.is_file():
            raise FileNotFoundError(f"nothing at --data.root {root}")
        if is_archive(root):
            return list_folder(unpacked(root, cache), self.named_splits, is_unpacked=True)
        if root.suffix.lower() == ".csv":
            return list_table(root, self.named_splits)
        raise ValueError(f"--data.root {root} is neither a folder, .tar, .tar.gz, .zip nor .csv")

    def _fits_cache(self, listing: ImageListing, cache: Path) -> bool:
        """Whether all decoded pixels fit the budget and the disk."""
        count = sum(len(images.targets) for images in listing.splits.values())
        size = count * self.plan["channels"] * self.plan["height"] * self.plan["width"]
        return size <= min(self.cache_gigabytes * 1e9, shutil.disk_usage(cache).free)

    def _take_over(self, weights: str) -> None:
        """Fills size, mean and std that were not given from pretrained weights.

        Raises:
            ValueError: There are no such weights.
        """
        from torchvision.models import get_weight  # loads slowly

        try:
            preset = get_weight(weights).transforms()
        except (ValueError, AttributeError, KeyError) as error:
            raise ValueError(
                f"--data.weights {weights!r}: torchvision has no such weights; they are written "
                "like ResNet50_Weights.IMAGENET1K_V2"
            ) from error
        taken = []
        if self.asked.image_size is None:
            size, scaled = preset.crop_size[0], preset.resize_size[0]
            self.asked = replace(self.asked, image_size=size, weights_resize_to=scaled)
            taken.append(f"image size {size}")
        if self.mean is None:
            self.mean, self.std = list(preset.mean), list(preset.std)
            taken.append(f"mean {self.mean}, std {self.std}")
        if taken:
            self.taken.append(note(f"{', '.join(taken)}, as the weights {weights} ask"))
