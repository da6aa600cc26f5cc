"""A picture file becomes uint8 [C,H,W], identically in training and in the torch-free predictor.

The rules, in order:

* only local files and bytes are read, never an address; more than `MAX_PIXELS` is refused;
* of an animation the first frame counts;
* the EXIF orientation is applied;
* transparent pixels are laid over white (LA, RGBA, PA, and P with a transparent colour);
* 16-bit grey levels are divided by 257, 1-bit ones become 0 and 255, all other modes (P, CMYK,
  YCbCr, HSV ...) convert to L or RGB as the number of channels asks; floating point is refused;
* `resize` "exact" stretches to H x W; "resize_crop" scales the shorter side to `resize_to` and
  takes the centre H x W. Both are antialiased bilinear; a picture that already fits is untouched.

C channels (1 or 3), H height, W width.
"""

import io
import struct
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MAX_PIXELS = 89_478_485  # Pillow's own limit, where it begins to warn of decompression bombs
MODE_OF_CHANNELS = {1: "L", 3: "RGB"}
GREY_16_BIT = ("I", "I;16", "I;16B", "I;16L", "I;16N")
TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa")

# What Pillow raises on a damaged file depends on the format and on where the damage lies.
DAMAGED = (OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, struct.error)

# Here and not around each call: pictures are decoded by several threads, which share the filters.
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)
# What Pillow says of a damaged header before it gives up or finds its way; giving up is told here.
NOISE = "Corrupt EXIF data|Truncated File Read|Metadata Warning"
warnings.filterwarnings("ignore", NOISE, UserWarning, r"PIL\.")


def decode_image(source: str | Path | bytes, preprocessing: Mapping[str, Any]) -> np.ndarray:
    """Decodes one picture to the size and channels that the model takes.

    Args:
        source: A path, or the bytes of a file.
        preprocessing: "channels", "height", "width", "resize" and "resize_to" of a datamodule.

    Returns:
        uint8 [C,H,W].

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a readable picture; the message names the file and the fault.
    """
    image = read_image(source, preprocessing["channels"])
    size = preprocessing["height"], preprocessing["width"]
    return to_array(resize(image, size, preprocessing["resize"], preprocessing["resize_to"]))


def read_image(source: str | Path | bytes, channels: int) -> Image.Image:
    """Decodes one picture in its own size, upright, in mode L (1 channel) or RGB (3).

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a readable picture; the message names the file and the fault.
    """
    if channels not in MODE_OF_CHANNELS:
        raise ValueError(f"channels must be 1 or 3, got {channels}")
    name = "the picture" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else read_file(Path(source))
    if not content:
        raise ValueError(f"{name}: the file is empty")
    mode = "unknown"
    try:
        image = Image.open(io.BytesIO(content))
        mode = image.mode
        image.seek(0)
        return convert_mode(ImageOps.exif_transpose(image), MODE_OF_CHANNELS[channels])
    except UnidentifiedImageError as error:
        raise ValueError(
            f"{name}: not a picture in a format that Pillow reads (it begins {content[:8]!r})"
        ) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(f"{name}: more than {MAX_PIXELS:,} pixels, refused") from error
    except DAMAGED as error:
        raise ValueError(f"{name}: cannot be decoded (mode {mode}): {error}") from error


def read_file(path: Path) -> bytes:
    """The bytes of a local file."""
    if path.is_dir():
        raise ValueError(f"{path}: a folder, not a picture")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file (addresses are never fetched)")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error


def convert_mode(image: Image.Image, mode: str) -> Image.Image:
    """Converts to L or RGB by the rules at the top of this file."""
    if image.mode == "F":
        raise ValueError("floating-point pixels have no fixed range; save it with 8 or 16 bits")
    if image.mode in GREY_16_BIT:
        levels = np.clip(np.asarray(image, dtype=np.int64), 0, 65535)
        image = Image.fromarray(((levels + 128) // 257).astype(np.uint8))
    if image.mode in TRANSPARENT or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image).convert("RGB")
    return image.convert(mode)


def resize(
    image: Image.Image, size: tuple[int, int], policy: str, resize_to: int | None
) -> Image.Image:
    """Brings a picture to `size` (H, W) by the policy "exact" or "resize_crop"."""
    height, width = size
    if policy == "exact":
        return image if image.size == (width, height) else scale(image, height, width)
    if policy != "resize_crop":
        raise ValueError(f"resize must be 'exact' or 'resize_crop', got {policy!r}")
    shorter = resize_to or max(height, width)
    if shorter < max(height, width):
        raise ValueError(f"resize_to {shorter} is smaller than the crop {height}x{width}")
    factor = shorter / min(image.size)
    scaled = max(shorter, round(image.height * factor)), max(shorter, round(image.width * factor))
    if scaled != (image.height, image.width):
        image = scale(image, *scaled)
    top, left = (image.height - height) // 2, (image.width - width) // 2
    return image.crop((left, top, left + width, top + height))


def scale(image: Image.Image, height: int, width: int) -> Image.Image:
    """Antialiased bilinear scaling."""
    return image.resize((width, height), Image.Resampling.BILINEAR)


def to_array(image: Image.Image) -> np.ndarray:
    """Mode L or RGB -> uint8 [C,H,W]."""
    pixels = np.asarray(image, dtype=np.uint8)  # [H,W] or [H,W,3]
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
