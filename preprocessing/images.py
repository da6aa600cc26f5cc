"""A picture file becomes uint8 [C,H,W], identically in training and in the torch-free predictor.

The rules, in order:

* only local files and bytes are read, never an address; more than `MAX_PIXELS` is refused;
* of an animation the first frame counts;
* the EXIF orientation is applied;
* transparent pixels are laid over white (LA, RGBA, PA, and P with a transparent colour);
* grey levels of 16 or 32 bits are scaled from `levels`, the range that the training pictures have
  (0 to 65,535 where they have none), to 0..255; what lies outside becomes 0 or 255;
* 1-bit levels become 0 and 255, of 16-bit colours the upper 8 bits count, all other modes (P, CMYK,
  YCbCr, HSV ...) convert to L or RGB as the number of channels asks; floating point is refused;
* `resize` "exact" stretches to H x W; "resize_crop" scales the shorter side to `resize_to` and
  takes the centre H x W. Without `resize_to` it scales to the smallest size that covers H x W, so
  that a picture of that size is untouched. All scaling is antialiased bilinear, and only what is
  kept is scaled: a picture of 65,500 x 1 pixels must not become one of millions.

C channels (1 or 3), H height, W width.
"""

import io
import struct
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

EXTENSIONS = (".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif",
              ".tiff", ".webp")  # fmt: skip
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # Pillow knows riskier ones
MAX_PIXELS = 89_478_485  # Pillow's own limit, where it begins to warn of decompression bombs
MODE_OF_CHANNELS = {1: "L", 3: "RGB"}
GREY_16_BIT = ("I", "I;16", "I;16B", "I;16L", "I;16N")
FULL_RANGE = (0, 65535)
BLOCK = 1 << 20  # pixels
TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa")

# What Pillow raises on a damaged file depends on the format and on where the damage lies.
DAMAGED = (OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, struct.error)

# Here and not around each call: pictures are decoded by several threads, which share the filters.
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)
# What Pillow says of a damaged header before it gives up or finds its way; giving up is told here.
NOISE = "Corrupt EXIF data|Truncated File Read|Metadata Warning"
warnings.filterwarnings("ignore", NOISE, UserWarning, r"PIL\.")


def decode_image(
    source: str | Path | bytes, preprocessing: Mapping[str, Any], odd: Counter[str] | None = None
) -> np.ndarray:
    """Decodes one picture to the size and channels that the model takes.

    Args:
        source: A path, or the bytes of a file.
        preprocessing: "channels", "height", "width", "resize", "resize_to" and, where training saw
            pictures of more than 8 bits, "levels" of a datamodule.
        odd: What was odd is counted in it, see `read_image`.

    Returns:
        uint8 [C,H,W].

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a readable picture; the message names the file and the fault.
    """
    image = read_image(source, preprocessing["channels"], preprocessing.get("levels"), odd)
    size = preprocessing["height"], preprocessing["width"]
    return to_array(resize(image, size, preprocessing["resize"], preprocessing["resize_to"]))


def read_image(
    source: str | Path | bytes,
    channels: int,
    levels: Sequence[int] | None = None,
    odd: Counter[str] | None = None,
) -> Image.Image:
    """Decodes one picture in its own size, upright, in mode L (1 channel) or RGB (3).

    Args:
        source: A path, or the bytes of a file.
        channels: 1 or 3.
        levels: Lowest and highest value of grey levels of more than 8 bits.
        odd: Counts "transparent" pictures, those with values "outside" the levels, "deep" ones
            where no levels are given, and those of whose colours only the "upper_bits" count.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a readable picture; the message names the file and the fault.
    """
    if channels not in MODE_OF_CHANNELS:
        raise ValueError(f"channels must be 1 or 3, got {channels}")
    counts = Counter[str]() if odd is None else odd
    with opened(source) as (image, loses_bits):
        counts["upper_bits"] += loses_bits
        if image.mode in GREY_16_BIT:
            image = scaled_levels(image, levels, counts)
        return convert_mode(image, MODE_OF_CHANNELS[channels], counts)


class Opened(NamedTuple):
    """A picture as it is stored."""

    image: Image.Image  # upright
    loses_bits: bool  # its colours have 16 bits, of which Pillow reads the upper 8


@contextmanager
def opened(source: str | Path | bytes) -> Iterator[Opened]:
    """The first frame; faults, also those in the block, are told with the file's name.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a readable picture.
    """
    name = "the picture" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else read_file(Path(source))
    if not content:
        raise ValueError(f"{name}: the file is empty")
    mode = "unknown"
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        mode = image.mode
        image.seek(0)
        stored = " ".join(str(tile[3]) for tile in image.tile)  # ('RGB;16B', 0, 1) and the like
        loses_bits = ";16" in stored and mode not in GREY_16_BIT
        yield Opened(ImageOps.exif_transpose(image), loses_bits)
    except UnidentifiedImageError as error:
        raise ValueError(
            f"{name}: not a picture in a format that is read here ({', '.join(FORMATS)}); it "
            f"begins {content[:8]!r}"
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


def scaled_levels(
    image: Image.Image, levels: Sequence[int] | None, odd: Counter[str]
) -> Image.Image:
    """Grey levels of 16 or 32 bits to mode L, by the range of the training pictures."""
    low, high = levels or FULL_RANGE
    values = np.asarray(image)  # [H,W]
    odd["deep"] += levels is None
    odd["outside"] += bool(values.min() < low or values.max() > high)
    width, rows = high - low, max(1, BLOCK // values.shape[1])
    scaled = np.empty(values.shape, np.uint8)
    for top in range(0, len(values), rows):  # eight bytes a pixel only for a few at a time
        some = np.clip(values[top : top + rows].astype(np.int64), low, high) - low
        scaled[top : top + rows] = (some * 255 + width // 2) // width
    return Image.fromarray(scaled)


def convert_mode(image: Image.Image, mode: str, odd: Counter[str]) -> Image.Image:
    """Converts to L or RGB by the rules at the top of this file."""
    if image.mode == "F":
        raise ValueError("floating-point pixels have no fixed range; save it with 8 or 16 bits")
    if image.mode in TRANSPARENT or "transparency" in image.info:
        image = image.convert("RGBA")
        odd["transparent"] += bool(np.asarray(image.getchannel("A")).min() < 255)
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
    if resize_to is not None and resize_to < max(size):
        raise ValueError(f"resize_to {resize_to} is smaller than the crop {height}x{width}")
    factors = height / image.height, width / image.width
    factor = max(factors) if resize_to is None else resize_to / min(image.size)
    smallest = size if resize_to is None else (resize_to, resize_to)
    scaled_height = max(smallest[0], round(image.height * factor))
    scaled_width = max(smallest[1], round(image.width * factor))
    top, left = (scaled_height - height) // 2, (scaled_width - width) // 2
    if (scaled_width, scaled_height) == image.size:
        return image.crop((left, top, left + width, top + height))
    x, y = image.width / scaled_width, image.height / scaled_height  # pixels of it, for one of ours
    box = (left * x, top * y, min((left + width) * x, image.width),
           min((top + height) * y, image.height))  # fmt: skip
    return scale(image, height, width, box)


def scale(
    image: Image.Image,
    height: int,
    width: int,
    box: tuple[float, float, float, float] | None = None,
) -> Image.Image:
    """Antialiased bilinear scaling of the whole picture or of a box in it."""
    return image.resize((width, height), Image.Resampling.BILINEAR, box)


def to_array(image: Image.Image) -> np.ndarray:
    """Mode L or RGB -> uint8 [C,H,W]."""
    pixels = np.asarray(image, dtype=np.uint8)  # [H,W] or [H,W,3]
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
