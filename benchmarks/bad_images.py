"""Pictures and folders of pictures that are damaged, odd or hostile."""

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.bad_case import Case, damages

TRAIN = ("--data", "image_folder", "--data.root", "tree", "--fast_dev_run")
FORMATS = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP", "tif": "TIFF"}
MODES = {
    "png": ("1", "L", "LA", "P", "RGBA", "I;16"),
    "tif": ("I", "CMYK", "YCbCr", "LAB", "F", "I;16", "RGBX", "1"),
    "jpg": ("CMYK", "L", "YCbCr"),
    "gif": ("P", "L"),
    "webp": ("RGBA",),
}


def picture(seed: int = 0, size: tuple[int, int] = (12, 12)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, form, **options)
    return content.getvalue()


def save_tree(folder: Path, names: tuple[str, ...] = ("a", "b"), count: int = 8) -> Path:
    """`tree/<name>/<number>.png`."""
    for place, name in enumerate(names):
        (folder / "tree" / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            content = encoded(picture(100 * place + number), "PNG")
            (folder / "tree" / name / f"{number}.png").write_bytes(content)
    return folder / "tree"


def png_chunk(kind: bytes, content: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + checksum


def png_of_size(width: int, height: int) -> bytes:
    """A header that promises more than the file holds."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    data = png_chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + header + data + png_chunk(b"IEND", b"")


def odd_files() -> Iterator[tuple[str, bytes]]:
    """Contents by file name."""
    for suffix, form in FORMATS.items():
        for damage, content in damages(encoded(picture(), form), flips=2).items():
            yield f"{damage}.{suffix}", content
    for suffix, modes in MODES.items():
        for mode in modes:
            image = Image.new(mode, (12, 12), None if mode in ("1", "F") else 7)
            yield f"mode {mode}.{suffix}", encoded(image, FORMATS[suffix])
    yield "empty.png", b""
    yield "text.png", b"this is no picture\n" * 20
    yield "noise.jpg", np.random.default_rng(0).bytes(3000)
    yield "webp named.png", encoded(picture(), "WEBP")
    yield "one pixel.png", encoded(picture(0, (1, 1)), "PNG")
    yield "line.png", encoded(picture(0, (1, 3000)), "PNG")
    yield "huge.png", encoded(Image.new("1", (10_000, 10_000)), "PNG")
    yield "promises too much.png", png_of_size(60_000, 60_000)
    yield "promises nothing.png", png_of_size(0, 0)
    yield "promises a little more.png", png_of_size(40, 40)
    yield "transparent.png", encoded(Image.new("P", (12, 12)), "PNG", transparency=0)
    frames = [picture(seed) for seed in range(3)]
    yield "moving.gif", encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    yield "moving.webp", encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:])
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "turned.jpg", encoded(picture(), "JPEG", exif=exif)
    whole = encoded(picture(), "JPEG", exif=exif)
    yield "bad exif.jpg", whole.replace(b"MM\x00*", b"MM\xff\xff").replace(b"II*", b"II\xff")
    text = png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(80_000_000)))
    yield "text bomb.png", encoded(picture(), "PNG")[:33] + text + encoded(picture(), "PNG")[33:]


def in_tree(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (save_tree(folder) / "a" / name).write_bytes(content)


def change(act: Callable[[Path], object]) -> Callable[[Path], object]:
    """Makes a good tree and changes it."""
    return lambda folder: act(save_tree(folder))


def split_tree(folder: Path, *splits: str) -> None:
    for split in splits:
        (folder / "tree" / split).mkdir(parents=True)
        save_tree(folder / "part").rename(folder / "tree" / split / "x")
        for place in (folder / "tree" / split / "x").iterdir():
            place.rename(folder / "tree" / split / place.name)
        (folder / "tree" / split / "x").rmdir()


def only_in_val(folder: Path) -> None:
    split_tree(folder, "train", "val")
    (folder / "tree" / "val" / "b").rename(folder / "tree" / "val" / "c")


def all_the_same(tree: Path) -> None:
    for path in tree.rglob("*.png"):
        path.write_bytes(encoded(picture(), "PNG"))


def trees() -> Iterator[tuple[str, Callable[[Path], object], tuple[str, ...]]]:
    """Folders as a whole: name, how to make it, further arguments."""

    yield "no folder", lambda folder: None, ()
    yield "empty folder", lambda folder: (folder / "tree").mkdir(), ()
    yield "a file", lambda folder: (folder / "tree").write_bytes(b"x"), ()
    yield "one class", lambda folder: save_tree(folder, ("a",)), ()
    yield "one picture a class", lambda folder: save_tree(folder, count=1), ()
    yield "one picture in a class", change(lambda t: save_tree(t.parent, ("c",), 1)), ()
    yield "an empty class", change(lambda t: (t / "c").mkdir()), ()
    yield "pictures beside the classes", change(lambda t: (t / "x.png").write_bytes(b"")), ()
    yield "a loop", change(lambda t: (t / "a" / "loop").symlink_to(t)), ()
    yield "a loop of links", change(lambda t: (t / "c").symlink_to(t / "c")), ()
    yield "a link to nothing", change(lambda t: (t / "a" / "x.png").symlink_to("gone.png")), ()
    yield "a link to a device", change(lambda t: (t / "a" / "x.png").symlink_to("/dev/zero")), ()
    yield "a pipe", change(lambda t: os.mkfifo(t / "a" / "x.png")), ()
    yield "a folder named as a picture", change(lambda t: (t / "a" / "x.png").mkdir()), ()
    yield "all the same", change(all_the_same), ()
    yield "val without train", lambda folder: split_tree(folder, "val"), ()
    yield "a class that only val has", only_in_val, ()
    for title, name in {
        "spaces": " a b ", "quotes": "a\"'`$(ls)", "a newline": "a\nb", "letters": "ü漢🎈",
        "no UTF-8": os.fsdecode(b"caf\xe9"), "a long name": "x" * 250, "a dot": ".hidden",
        "a percent sign": "%s%n", "markup": "[red]a[/red]", "a minus": "--help", "a number": "10",
        "a NaN": "nan", "a tab": "a\tb", "a right-to-left mark": "\u202egnp",
    }.items():  # fmt: skip
        yield f"a class name with {title}", partial(save_tree, names=("a", "b", name)), ()
    for name, values in {
        "image_size": ("0", "-3", "100000", "1"), "channels": ("2", "0"), "val_fraction":
        ("0", "1", "nan", "-1", "0.999"), "test_fraction": ("2", "0.95"), "mean": ("[0.5]", "[]",
        "[nan,nan,nan]"), "resize_to": ("1", "-1", "0"), "weights": ("None", "ResNet50", "os.path"),
        "cache_gigabytes": ("-1", "nan", "0"), "num_workers": ("-1", "1e9", "1.5"), "cache_dir":
        ("/proc/none", "tree/a/0.png"), "batch_size": ("0", "1", "100000000"), "mixup": ("-1",
        "inf"), "crop_padding": ("-1", "1000"), "rand_augment": ("99",), "color_jitter": ("9",),
    }.items():  # fmt: skip
        for value in values:
            extra = [f"--data.{name}={value}"]
            extra += ["--data.std=[0.1]"] if name == "mean" else []
            extra += ["--data.num_workers=0"] if name == "cache_gigabytes" else []
            extra += ["--data.resize=resize_crop", "--data.image_size=8"] * (name == "resize_to")
            yield f"--data.{name} {value}", save_tree, tuple(extra)


def tables() -> Iterator[tuple[str, bytes]]:
    """CSV files of paths and labels."""
    good = [f"tree/{c}/{n}.png,{c}" for c in "ab" for n in range(8)]
    body = "\n".join(good)
    for title, text in {
        "only a header": "path,label\n", "no header": body, "other columns": f"file,class\n{body}",
        "a missing file": f"path,label\n{body}\nnone.png,a", "an address":
        f"path,label\n{body}\nhttps://example.org/x.png,a", "an empty label":
        f"path,label\n{body}\ntree/a/0.png,", "ragged rows": f"path,label\n{body}\nx\n,,,\ny,a,b,c",
        "an unknown split": f"path,label,split\n{body},train\nx.png,a,exam", "an open quote":
        f'path,label\n"{body}', "a NUL byte": f"path,label\n{body}\na\0b,a", "an empty file": "",
        "a path of a device": f"path,label\n{body}\n/dev/zero,a", "a long line": "path,label\n" +
        "x" * 2_000_000, "a path that climbs": f"path,label\n{body}\n../../../../etc/passwd,a",
    }.items():  # fmt: skip
        yield title, text.encode()
    yield "Latin-1", f"path,label\n{body}\ncaf\xe9.png,a".encode("latin-1")
    yield "UTF-16", f"path,label\n{body}".encode("utf-16")
    yield "binary", np.random.default_rng(1).bytes(500)


def image_cases(checkpoint: Path) -> Iterator[Case]:
    for name, content in odd_files():
        for program in ("predict", "train"):
            arguments = ("--model", str(checkpoint), "tree/a") if program == "predict" else TRAIN
            yield Case("images", f"{program} {name}", program, arguments, in_tree(name, content))
    for name, prepare, extra in trees():
        yield Case("folders", name, "train", (*TRAIN, *extra), prepare)
    for name, content in tables():

        def prepare_table(folder: Path, content: bytes = content) -> None:
            save_tree(folder)
            (folder / "t.csv").write_bytes(content)

        arguments = ("--data", "image_folder", "--data.root", "t.csv", "--fast_dev_run")
        yield Case("tables", f"paths: {name}", "train", arguments, prepare_table)
