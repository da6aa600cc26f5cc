"""Pictures of every mode, orientation and kind of damage."""

import io
import struct
import subprocess
import sys
import warnings
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from preprocessing import images as module
from preprocessing.images import decode_image, read_image, to_array

GREY = {"channels": 1, "height": 6, "width": 4, "resize": "exact", "resize_to": None}
COLOUR = GREY | {"channels": 3}


def save(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)
    return path


def filled(mode: str, size: tuple[int, int], colour: object) -> Image.Image:
    return Image.new(mode, size, colour)


@pytest.mark.parametrize("plan", [GREY, COLOUR])
def test_every_mode_gives_the_same_shape(tmp_path: Path, plan: dict) -> None:
    paths = [
        save(tmp_path / "l.png", filled("L", (4, 6), 200)),
        save(tmp_path / "rgb.jpg", filled("RGB", (9, 9), (200, 200, 200))),
        save(tmp_path / "rgba.png", filled("RGBA", (5, 5), (200, 200, 200, 255))),
        save(tmp_path / "p.gif", filled("L", (8, 8), 200).convert("P")),
        save(tmp_path / "cmyk.jpg", filled("CMYK", (8, 8), (0, 0, 0, 55)), quality=95),
        save(tmp_path / "one.png", filled("L", (1, 1), 200)),
        save(tmp_path / "i16.png", Image.fromarray(np.full((6, 4), 200 * 257, np.uint16))),
    ]
    batch = np.stack([decode_image(path, plan) for path in paths])  # [N,C,H,W]
    assert batch.shape == (7, plan["channels"], 6, 4)
    assert batch.dtype == np.uint8
    assert batch.flags.c_contiguous
    assert np.abs(batch.astype(int) - 200).max() <= 3  # JPEG rounds


def test_one_bit_pictures_become_black_and_white(tmp_path: Path) -> None:
    image = Image.new("1", (4, 6), 1)
    image.putpixel((0, 0), 0)
    pixels = decode_image(save(tmp_path / "bit.png", image), GREY)
    assert sorted(np.unique(pixels)) == [0, 255]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_become_white(tmp_path: Path, mode: str) -> None:
    if mode == "P":
        image = Image.new("P", (4, 6), 0)
        path = save(tmp_path / "x.png", image, transparency=0)
    else:
        path = save(tmp_path / "x.png", Image.new(mode, (4, 6), (0,) * len(mode)))
    assert (decode_image(path, COLOUR) == 255).all()


def test_half_transparent_black_is_mixed_with_white(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", Image.new("RGBA", (4, 6), (0, 0, 0, 128)))
    assert (np.abs(decode_image(path, COLOUR).astype(int) - 127) <= 1).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int) -> None:
    """What a viewer shows has the red half on the left, however the file stores it."""
    shown = np.zeros((40, 40, 3), np.uint8)
    shown[:, :20, 0] = 255
    undo = {
        1: lambda a: a, 2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud,
        5: lambda a: a.transpose(1, 0, 2), 6: lambda a: np.rot90(a, 1),
        7: lambda a: np.rot90(a.transpose(1, 0, 2), 2), 8: lambda a: np.rot90(a, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(undo(shown)))
    path = save(tmp_path / "x.jpg", stored, exif=exif, quality=95)
    pixels = decode_image(path, COLOUR | {"height": 40, "width": 40})
    assert pixels[0, :, :18].min() > 200
    assert pixels[0, :, 22:].max() < 60


def test_first_frame_of_an_animation_counts(tmp_path: Path) -> None:
    frames = [Image.new("L", (4, 6), level) for level in (10, 250)]
    path = save(tmp_path / "x.gif", frames[0], save_all=True, append_images=frames[1:])
    assert (decode_image(path, GREY) == 10).all()


def test_resize_crop_takes_the_centre(tmp_path: Path) -> None:
    pixels = np.zeros((20, 60), np.uint8)
    pixels[:, 25:35] = 255
    path = save(tmp_path / "x.png", Image.fromarray(pixels))
    plan = GREY | {"height": 10, "width": 10, "resize": "resize_crop", "resize_to": 20}
    assert (decode_image(path, plan) == 255).all()


def test_a_picture_that_fits_is_untouched(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4), dtype=np.uint8)
    path = save(tmp_path / "x.png", Image.fromarray(pixels))
    assert (decode_image(path, GREY)[0] == pixels).all()
    assert (decode_image(path.read_bytes(), GREY)[0] == pixels).all()


def broken_files(folder: Path) -> dict[str, bytes]:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "JPEG")
    whole = buffer.getvalue()
    floating = io.BytesIO()
    Image.fromarray(np.zeros((4, 4), np.float32)).save(floating, "TIFF")
    return {
        "half.jpg": whole[: len(whole) // 2],
        "empty.jpg": b"",
        "text.png": b"this is text",
        "float.tif": floating.getvalue(),
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("half.jpg", r"half\.jpg: cannot be decoded \(mode RGB\): .*truncated"),
        ("empty.jpg", r"empty\.jpg: the file is empty"),
        ("text.png", r"text\.png: not a picture in a format that is read here .*this is"),
        ("float.tif", r"float\.tif: cannot be decoded \(mode F\): floating-point"),
    ],
)
def test_a_broken_file_is_named_with_its_fault(tmp_path: Path, name: str, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(broken_files(tmp_path)[name])
    with pytest.raises(ValueError, match=message):
        decode_image(path, COLOUR)


def test_missing_files_folders_and_addresses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.png: no such file"):
        decode_image(tmp_path / "nothing.png", GREY)
    with pytest.raises(ValueError, match="a folder, not a picture"):
        decode_image(tmp_path, GREY)
    with pytest.raises(FileNotFoundError, match="addresses are never fetched"):
        decode_image("https://example.org/cat.png", GREY)


@pytest.mark.parametrize("limit", [9000, 3000])
def test_a_decompression_bomb_is_refused(tmp_path: Path, limit: int) -> None:
    """Both above Pillow's limit, where it would only warn, and beyond twice of it."""
    path = save(tmp_path / "x.png", Image.new("L", (100, 100)))
    code = (
        "from PIL import Image; from preprocessing.images import read_image\n"
        f"Image.MAX_IMAGE_PIXELS = {limit}\n"
        f"read_image({str(path)!r}, 1)"
    )
    # in a process with Python's own warning filters
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 1
    assert "x.png: more than 89,478,485 pixels, refused" in done.stderr


def test_a_damaged_header_is_told_in_one_voice(tmp_path: Path) -> None:
    """Pillow's own warning does not stand beside the message."""
    path = save(tmp_path / "x.tif", Image.new("L", (100, 100)))
    path.write_bytes(path.read_bytes()[:9])
    code = f"from preprocessing.images import read_image; read_image({str(path)!r}, 1)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 1
    assert "x.tif: not a picture in a format that is read here" in done.stderr
    assert "Warning" not in done.stderr


def test_threads_do_not_disturb_the_warning_filters(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", Image.new("L", (4, 6)))
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: decode_image(path, GREY), range(200)))
    assert warnings.filters == before


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "x.png", Image.new("L", (9, 9)))
    with pytest.raises(ValueError, match="channels must be 1 or 3, got 4"):
        read_image(path, 4)
    with pytest.raises(ValueError, match="resize must be 'exact' or 'resize_crop', got 'fit'"):
        decode_image(path, GREY | {"resize": "fit"})
    with pytest.raises(ValueError, match="resize_to 3 is smaller than the crop 6x4"):
        decode_image(path, GREY | {"resize": "resize_crop", "resize_to": 3})


def test_the_limit_is_pillows_own() -> None:
    assert module.MAX_PIXELS == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("size", [(65_500, 1), (1, 65_500), (20_000, 2), (3, 9), (1, 1)])
@pytest.mark.parametrize("resize_to", [256, None])
def test_only_what_is_kept_is_scaled(monkeypatch, size: tuple[int, int], resize_to: int | None):
    """A thin picture of a few hundred bytes must not become one of millions of pixels."""
    made = []
    resize = Image.Image.resize

    def watched(self: Image.Image, size: tuple[int, int], *arguments: object) -> Image.Image:
        made.append(size[0] * size[1])
        return resize(self, size, *arguments)

    monkeypatch.setattr(Image.Image, "resize", watched)
    content = io.BytesIO()
    Image.new("1", size, 1).save(content, "PNG")
    plan = COLOUR | {"height": 224, "width": 224, "resize": "resize_crop", "resize_to": resize_to}
    assert (decode_image(content.getvalue(), plan) == 255).all()
    assert made == [224 * 224]


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_inside_the_scaling_is_a_cut_after_it(seed: int) -> None:
    """But for the rounding of the resampling."""
    generator = np.random.default_rng(seed)
    height, width, rows, columns, more = generator.integers(1, 90, 5).tolist()
    image = Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))
    shorter = max(rows, columns) + more
    factor = shorter / min(height, width)
    scaled = max(shorter, round(width * factor)), max(shorter, round(height * factor))
    left, top = (scaled[0] - columns) // 2, (scaled[1] - rows) // 2
    whole = image.resize(scaled, Image.Resampling.BILINEAR)
    expected = whole.crop((left, top, left + columns, top + rows))
    found = module.resize(image, (rows, columns), "resize_crop", shorter)
    difference = np.asarray(found, dtype=int) - np.asarray(expected, dtype=int)
    assert np.abs(difference).max() <= 2


def test_without_a_size_to_cut_from_a_picture_just_covers(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4), dtype=np.uint8)
    plan = GREY | {"resize": "resize_crop", "resize_to": None}
    path = save(tmp_path / "x.png", Image.fromarray(pixels))
    assert (decode_image(path, plan)[0] == pixels).all()
    wide = np.hstack([np.zeros((6, 5), np.uint8), pixels, np.zeros((6, 5), np.uint8)])
    assert (decode_image(save(tmp_path / "x.png", Image.fromarray(wide)), plan)[0] == pixels).all()


@pytest.mark.parametrize("form", ["EPS", "PDF", "ICO", "TGA", "PCX", "SGI", "DDS", "MSP"])
def test_formats_that_are_not_named_are_never_tried(form: str, monkeypatch) -> None:
    """EPS would start Ghostscript."""
    content = io.BytesIO()
    Image.new("1" if form == "MSP" else "RGB", (32, 32)).save(content, form)
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(ValueError, match=r"not a picture in a format that is read here \(BMP, GIF"):
        read_image(content.getvalue(), 3)


@pytest.mark.parametrize("form", ["BMP", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP"])
def test_formats_that_are_read(form: str) -> None:
    content = io.BytesIO()
    Image.new("RGB", (32, 32), (9, 9, 9)).save(content, form)
    assert np.abs(to_array(read_image(content.getvalue(), 3)).astype(int) - 9).max() <= 3


def png_of_16_bits(values: np.ndarray) -> bytes:
    """A PNG of 16 bits a value; grey, grey and alpha, RGB or RGBA by the last axis."""
    height, width, depth = values.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[depth]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    found = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    for name, content in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        checksum = struct.pack(">I", zlib.crc32(name + content))
        found += struct.pack(">I", len(content)) + name + content + checksum
    return found


@pytest.mark.parametrize(
    ("depth", "expected"),
    [(1, {"deep"}), (2, {"upper_bits"}), (3, {"upper_bits"}), (4, {"upper_bits"})],
)
def test_what_is_odd_about_a_picture_of_16_bits_is_counted(depth: int, expected: set[str]) -> None:
    odd: Counter[str] = Counter()
    read_image(png_of_16_bits(np.full((4, 4, depth), 65535)), 3, odd=odd)
    assert set(+odd) == expected


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pictures_are_counted_and_opaque_ones_are_not(mode: str) -> None:
    counts = []
    for alpha in (255, 254):
        content = io.BytesIO()
        image = Image.new(mode, (4, 4), 0 if mode == "P" else (9,) * (len(mode) - 1) + (alpha,))
        image.save(content, "PNG", **({"transparency": 0} if mode == "P" and alpha < 255 else {}))
        odd: Counter[str] = Counter()
        read_image(content.getvalue(), 3, odd=odd)
        counts.append(odd["transparent"])
    assert counts == [0, 1]


@pytest.mark.parametrize("block", [1, 11, 1 << 20])
def test_levels_are_scaled_to_the_ends(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    values = np.array([[-5, 0, 1000, 2000, 9000]], np.int32)
    values = np.repeat(values, 7, axis=0)
    content = io.BytesIO()
    Image.fromarray(values).save(content, "TIFF")
    odd: Counter[str] = Counter()
    pixels = to_array(read_image(content.getvalue(), 1, [0, 2000], odd))
    assert pixels.tolist() == [[[0, 0, 128, 255, 255]] * 7]
    assert +odd == {"outside": 1}
