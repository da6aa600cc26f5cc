"""Pictures in a folder tree, an archive of one, or a CSV table of paths and labels."""

import math
import os
import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

from datamodules.archives import is_archive, unpacked
from datamodules.cache_folder import cache_folder
from datamodules.image_datamodule import ImageDataModule
from datamodules.image_listing import ImageListing, ListedImages, list_folder, list_table
from datamodules.image_splits import ImageSplits, cut_off
from datamodules.packed_images import FileImages, ImageSet, PackedImages
from datamodules.pixel_cache import decode_once
from datamodules.splits import stratified_subset
from preprocessing.images import MAX_PIXELS, read_image

DEFAULT_SIZE = 64  # where pictures differ in size and none is asked for
LARGEST_SIZE = math.isqrt(MAX_PIXELS)
LARGEST_NATIVE = 256  # up to this side, pictures of one common size are taken as they are
PROBED_IMAGES = 64
CROP_SHARE = 224 / 256  # centre crop after scaling, as is usual for ImageNet


class ImageFolder(ImageDataModule):
    """Pictures sorted into classes.

    Args:
        root: A folder `train/<class>/…` with val and test beside train, a folder `<class>/…`, a
            .tar, .tar.gz or .zip of either, or a .csv with the columns path and label.
        image_size: Side of the network's input; None takes the pictures' own common size.
        channels: 1 for grey, 3 for colour.
        resize: exact stretches to the size; resize_crop scales the shorter side and cuts the
            middle.
        resize_to: The shorter side before that cut; None is 256 / 224 of the size.
        weights: Pretrained torchvision weights whose size, mean and std are taken over, for
            example ResNet50_Weights.IMAGENET1K_V2.
        test_fraction: Share of train that becomes test where the source has none.
        skip_unreadable: Leaves unreadable pictures out, instead of stopping.
        cache_gigabytes: Decoded pixels are kept up to this size; more is decoded in workers.
        common: Everything else, see ImageDataModule.
    """

    def __init__(
        self,
        root: str | None = None,
        image_size: Annotated[int, ">= 1"] | None = None,
        channels: Literal[1, 3] = 3,
        resize: Literal["exact", "resize_crop"] = "resize_crop",
        resize_to: Annotated[int, ">= 1"] | None = None,
        weights: str | None = None,
        test_fraction: Annotated[float, "0 < x < 1"] = 0.15,
        skip_unreadable: bool = False,
        cache_gigabytes: Annotated[float, ">= 0"] = 8.0,
        **common: Any,
    ) -> None:
        super().__init__(root, **common)
        if image_size is not None and not 1 <= image_size <= LARGEST_SIZE:
            raise ValueError(f"--data.image_size must be 1 to {LARGEST_SIZE}, got {image_size}")
        if not cache_gigabytes >= 0:
            raise ValueError(f"--data.cache_gigabytes must be at least 0, got {cache_gigabytes}")
        self.image_size = image_size
        self.channels = channels
        self.resize = resize
        self.resize_to = resize_to
        self.test_fraction = test_fraction
        self.skip_unreadable = skip_unreadable
        self.cache_gigabytes = cache_gigabytes
        if weights is not None:
            self._take_over(weights)

    def load(self) -> ImageSplits:
        cache = cache_folder(self.cache_dir)
        listing = self.find_images(cache)
        train_images = listing.splits["train"]
        notes = self._choose_size(train_images)
        recrops = bool(self.sample_augmentation.random_resized_crop) and not self._is_native
        pack = self._fits_cache(listing, cache)
        sets: dict[str, ImageSet] = {}
        for split, images in listing.splits.items():
            # training pictures that are cropped anew each time are packed only if val is in them
            needless = split == "train" and recrops and "val" in listing.splits
            sets[split], found = decode_once(
                images, self.plan, pack and not needless, cache, self.skip_unreadable
            )
            notes += [type(note)(f"{split}: {note}") for note in found]
        for split, fraction in (("test", self.test_fraction), ("val", self.val_fraction)):
            if split not in sets:
                sets["train"], sets[split] = cut_off(sets["train"], fraction, self.seed)
                notes.append(f"{split}: {len(sets[split])} pictures of train, chosen by seed")
        train = sets["train"]
        if recrops and isinstance(train, PackedImages) and train.rows is not None:
            paths = train_images.paths[train.rows]
            train = FileImages(paths, train.targets, self.plan, train.hashes)
        notes = [*listing.notes, *notes]
        return ImageSplits(listing.class_names, train, sets["val"], sets["test"], notes)

    @property
    def preprocessing(self) -> dict[str, Any]:
        self.setup()
        return dict(self.plan)

    def find_images(self, cache: Path) -> ImageListing:
        """Lists the pictures of folder, archive or table.

        Raises:
            FileNotFoundError: There is nothing at --data.root.
            ValueError: It is not given, or neither of the three.
        """
        if self.root is None:
            raise ValueError("image_folder needs --data.root: a folder, an archive or a .csv table")
        root = Path(self.root)
        if root.is_dir():
            return list_folder(root)
        if not root.is_file():
            raise FileNotFoundError(f"nothing at --data.root {root}")
        if is_archive(root):
            return list_folder(unpacked(root, cache))
        if root.suffix.lower() == ".csv":
            return list_table(root)
        raise ValueError(f"--data.root {root} is neither a folder, .tar, .tar.gz, .zip nor .csv")

    def _choose_size(self, train: ListedImages) -> list[str]:
        """Sets `plan`, what every picture goes through; returns what the user should know."""
        sizes = set()
        for row in stratified_subset(train.targets, PROBED_IMAGES):
            try:
                image = read_image(os.fsdecode(train.paths[row]), self.channels)
            except (ValueError, FileNotFoundError):
                continue  # reported with all others when every picture is read
            sizes.add((image.height, image.width))
        notes = []
        common = next(iter(sizes)) if len(sizes) == 1 else None
        height = width = self.image_size or DEFAULT_SIZE
        if self.image_size is None and common and max(common) <= LARGEST_NATIVE:
            height, width = common
        elif self.image_size is None:
            notes.append(
                f"pictures differ in size or are large; they become {height}x{width} "
                "(--data.image_size chooses another size)"
            )
        self._is_native = sizes == {(height, width)}
        crops = self.resize == "resize_crop" and not self._is_native
        self.plan: dict[str, Any] = {
            "kind": "image",
            "channels": self.channels,
            "height": height,
            "width": width,
            "resize": "resize_crop" if crops else "exact",
            "resize_to": (self.resize_to or round(height / CROP_SHARE)) if crops else None,
        }
        return notes

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
        if self.image_size is None:
            self.image_size, self.resize_to = preset.crop_size[0], preset.resize_size[0]
        if self.mean is None:
            self.mean, self.std = list(preset.mean), list(preset.std)
