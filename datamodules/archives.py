"""Unpacks archives that need not be trusted: only plain files and folders, only below the target.

Refused are absolute paths, `..`, links, devices and bombs; nothing is left behind then.
"""

import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, Self

from datamodules.cache_folder import build_once
from datamodules.wording import printable
from preprocessing.sources import is_hidden

EXTENSIONS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
# pictures are compressed already: an archive of them hardly grows when it is unpacked
LARGEST_RATIO = 100
ALWAYS_ALLOWED = 100_000_000  # bytes, whatever the ratio
# each file and folder on a member's path costs the disk an entry, however little it holds
ENTRIES_ALWAYS_ALLOWED = 1_000_000
LONGEST_HEADER = 1_000_000  # bytes
HEADERS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
           tarfile.SOLARIS_XHDTYPE)  # fmt: skip
LEAST_BYTES = 16  # of the archive for each entry beyond those

# What damage, encryption (RuntimeError) and unknown methods of compression raise
DAMAGED = (ValueError, OSError, EOFError, RuntimeError, tarfile.TarError, zipfile.BadZipFile,
           zlib.error, lzma.LZMAError)  # fmt: skip


class Header(tarfile.TarInfo):
    """What stands before a member, for example its long name, which is read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type in HEADERS and header.size > LONGEST_HEADER:
            raise ValueError(f"it has a header of {header.size:,} bytes")
        return header


class Member(NamedTuple):
    name: str
    content: IO[bytes] | None  # None for a folder


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(EXTENSIONS)


def unpacked(archive: Path, cache: Path) -> Path:
    """Unpacks into the cache once; returns the folder.

    Raises:
        ValueError: The archive is damaged, or holds something that is refused.
    """
    status = archive.stat()
    name = f"{archive.name}-{status.st_size:x}-{status.st_mtime_ns:x}"
    return build_once(cache / "unpacked" / name, lambda target: unpack(archive, target))


def past_single_folder(folder: Path) -> Path:
    """The one folder that holds all folders, as most archives have it; else the folder itself."""
    inner = visible_folders(folder)
    return inner[0] if len(inner) == 1 and visible_folders(inner[0]) else folder


def visible_folders(folder: Path) -> list[Path]:
    return [child for child in folder.iterdir() if child.is_dir() and not is_hidden(child.name)]


def unpack(archive: Path, target: Path) -> None:
    """Writes all files of an archive below `target`."""
    size = archive.stat().st_size
    allowed = max(ALWAYS_ALLOWED, size * LARGEST_RATIO)
    entries = max(ENTRIES_ALWAYS_ALLOWED, size // LEAST_BYTES)
    print(printable(f"unpacking {archive} once, into the cache …"), flush=True)
    try:
        for member in members(archive):
            entries -= len(PurePosixPath(member.name).parts)
            if entries < 0:
                raise ValueError("it holds far more files than pictures of its size would be")
            if member.content is None:
                continue
            place = target / safe_path(member.name)
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as file:
                while block := member.content.read(2**20):
                    allowed -= len(block)
                    if allowed < 0:
                        raise ValueError("it unpacks to far more than pictures would: a bomb")
                    file.write(block)
    except FileExistsError as error:
        raise ValueError(f"{archive}: {error.filename} comes twice") from error
    except DAMAGED as error:
        reason = " ".join(str(error).split())  # tarfile's has several lines
        raise ValueError(f"{archive} cannot be unpacked: {reason}") from error


def members(archive: Path) -> Iterator[Member]:
    """The files and folders of an archive; anything else is refused."""
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as file:
            for entry in file.infolist():
                if entry.is_dir():
                    yield Member(entry.filename, None)
                    continue
                kind = entry.external_attr >> 16 & 0o170000
                if kind not in (0, 0o100000):
                    raise ValueError(f"{entry.filename!r} is a link or device")
                with file.open(entry) as content:
                    yield Member(entry.filename, content)
        return
    with tarfile.open(archive, tarinfo=Header) as tar:
        for info in tar:
            if info.isdir():
                yield Member(info.name, None)
                continue
            stream = tar.extractfile(info) if info.isreg() else None
            if stream is None:
                raise ValueError(f"{info.name!r} is a link or device")
            yield Member(info.name, stream)
        assert tar.fileobj is not None
        tar.fileobj.seek(tar.offset)
        if not tar.fileobj.read(1):  # an archive ends with empty blocks
            raise ValueError("it was cut off")


def safe_path(name: str) -> Path:
    """A relative path that stays below where it is put.

    Raises:
        ValueError: The name is absolute or climbs up.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name.split("/")[0] or not path.parts:
        raise ValueError(f"{name!r} leads outside the archive")
    return Path(os.fspath(path))
