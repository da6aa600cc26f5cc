"""Fetches a file once: goes on where a broken connection stopped, and checks the result."""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from datamodules.cache_folder import locked

ATTEMPTS = 3
TIMEOUT = 30  # seconds without a byte
BLOCK = 2**20


class DownloadError(ValueError):
    """No address gave the right file."""


def fetch(addresses: Sequence[str], md5: str, target: Path) -> Path:
    """Downloads to `target`, unless it is there.

    Args:
        addresses: The same file in several places, tried in turn.
        md5: The publisher's checksum.
        target: Its final name; until it is whole and right it is called `<name>.part`.

    Raises:
        DownloadError: Nothing can be reached, or what came has another checksum.
    """
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with locked(target.with_name(f"{target.name}.lock")):
        faults = []
        for address in [*addresses] * ATTEMPTS:
            if target.is_file():  # another process was faster
                return target
            try:
                fetch_rest(address, part)
            except (OSError, HTTPException, ValueError) as error:
                faults.append(f"{address}: {getattr(error, 'reason', None) or error}")
                continue
            found = md5_of(part)
            if found == md5:
                os.replace(part, target)
                return target
            part.unlink()
            faults.append(f"{address}: wrong checksum {found}, expected {md5}; refused")
        if part.is_file() and not part.stat().st_size:  # nothing to go on from
            part.unlink()
    raise DownloadError("\n  ".join(dict.fromkeys(faults)))


def fetch_rest(address: str, part: Path) -> None:
    """Appends to `part` what is missing of the file at an http address.

    Raises:
        OSError: The connection failed or ended early; what has come stays in `part`.
        ValueError: Not an http or https address.
    """
    if not address.startswith(("http://", "https://")):
        raise ValueError("only http and https addresses are fetched")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is missing (then start anew), or it is of another file
            part.unlink()
        raise
    with response, part.open("ab" if response.status == 206 else "wb") as file:
        expected = response.headers.get("Content-Length")
        received = 0
        while block := response.read(BLOCK):
            file.write(block)
            received += len(block)
    if expected is not None and received < int(expected):
        raise OSError(f"the connection ended after {received} of {expected} bytes")


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
