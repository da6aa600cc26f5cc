"""Pictures of every mode, orientation and kind of damage."""

import io
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from preprocessing import images as module
from preprocessing.images import decode_image, read_image

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
        ("text.png", r"text\.png: not a picture in a format that Pillow reads .*this is"),
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
    assert "x.tif: not a picture in a format that Pillow reads" in done.stderr
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
