"""Archives of pictures that are damaged, or that would write, link or grow where they must not."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bad_case import Case, cut, flip
from benchmarks.bad_images import encoded, picture


def good_members() -> dict[str, bytes]:
    return {
        f"{c}/{n}.png": encoded(picture(10 * n + ord(c)), "PNG") for c in "ab" for n in range(8)
    }


def tar_of(extra: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, data in good_members().items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info, data in extra:
            tar.addfile(info, io.BytesIO(data))
    return content.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 1) -> tuple:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = size if kind == tarfile.REGTYPE else 0
    return info, bytes(size)


def zip_of(extra: dict[str | zipfile.ZipInfo, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in (good_members() | extra).items():
            file.writestr(name, data)
    return content.getvalue()


def linked(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def whole() -> Iterator[tuple[str, bytes]]:
    yield "tar", tar_of([])
    yield "tar.gz", gzip.compress(tar_of([]))
    yield "zip", zip_of({})


def hostile() -> Iterator[tuple[str, bytes]]:
    """Contents by file name; all of these must be refused."""
    for title, name in {
        "climbs": "../out.png", "climbs inside": "a/../../out.png", "absolute": "/tmp/out.png",
        "backslashes": "..\\out.png", "a drive": "C:\\out.png",
    }.items():  # fmt: skip
        yield f"{title}.tar", tar_of([entry(name)])
        yield f"{title}.zip", zip_of({name: b"x"})
    for title, kind, link in (
        ("a link", tarfile.SYMTYPE, "/etc"), ("a link inside", tarfile.SYMTYPE, "0.png"),
        ("a hard link", tarfile.LNKTYPE, "/etc/passwd"), ("a device", tarfile.CHRTYPE, ""),
        ("a block device", tarfile.BLKTYPE, ""), ("a pipe", tarfile.FIFOTYPE, ""),
    ):  # fmt: skip
        yield f"{title}.tar", tar_of([entry("a/x.png", kind, link)])
    yield "a link.zip", zip_of({linked("a/x.png", 0o120777): b"/etc/passwd"})
    yield "a device.zip", zip_of({linked("a/x.png", 0o020666): b""})
    yield "a bomb.zip", zip_of({"a/zeros.png": bytes(300_000_000)})
    yield "a bomb.tar.gz", gzip.compress(tar_of([entry("a/zeros.png", size=300_000_000)]))
    yield "twice.tar", tar_of([entry("a/0.png")])
    yield "a file as folder.tar", tar_of([entry("a/0.png/x.png")])
    yield "a long name.tar", tar_of([entry("a/" + "x" * 300 + ".png")])
    yield "a deep name.tar", tar_of([entry("a/" * 3000 + "x.png")])
    for suffix, content in whole():
        yield f"cut.{suffix}", cut(content, 0.5)
        yield f"nothing.{suffix}", b""
        yield f"noise.{suffix}", flip(bytes(4000), 0, 8000)
    yield "another kind.tar", zip_of({})
    yield "another kind.zip", tar_of([])
    yield "no pictures.zip", zip_of({}).replace(b".png", b".doc")
    locked = bytearray(zip_of({}))
    for place in (locked.find(b"PK\x03\x04") + 6, locked.find(b"PK\x01\x02") + 8):
        locked[place] |= 1  # the flag of encryption
    yield "locked.zip", bytes(locked)
    unknown = bytearray(zip_of({}))
    for place in (unknown.find(b"PK\x03\x04") + 8, unknown.find(b"PK\x01\x02") + 10):
        unknown[place] = 97  # a method of compression that nobody has
    yield "unknown method.zip", bytes(unknown)


def damaged() -> Iterator[tuple[str, bytes]]:
    yield "a NUL.zip", zip_of({"a/x.png": b"x"}).replace(b"a/x.png", b"a/\0.png")
    for suffix, content in whole():
        for seed in range(5):
            yield f"flipped {seed}.{suffix}", flip(content, seed, 1 + 4 * (seed > 2))


def archive_cases() -> Iterator[Case]:
    for refused, source in ((True, hostile()), (False, damaged())):
        for name, content in source:

            def prepare(folder: Path, name: str = name, content: bytes = content) -> None:
                (folder / name).write_bytes(content)

            arguments = ("--data", "image_folder", "--data.root", name, "--fast_dev_run")
            yield Case("archives", name, "train", arguments, prepare, refused)
