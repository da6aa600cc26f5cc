"""One bad input: how it is made, what is called with it; and ways to damage bytes."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ABSENT = object()
RAN = "ran"  # the file that hostile code would leave behind


@dataclass(frozen=True)
class Case:
    """`prepare` fills a fresh folder; `program` then runs inside it.

    program: train, predict or export. refused: a success would be wrong. works: a refusal would.
    """

    kind: str
    name: str
    program: str
    arguments: tuple[str, ...]
    prepare: Callable[[Path], object]
    refused: bool = False
    works: bool = False


def nothing(folder: Path) -> None:
    """For inputs that need no file."""


def cut(content: bytes, share: float) -> bytes:
    """The beginning of a file."""
    return content[: int(len(content) * share)]


def flip(content: bytes, seed: int, count: int = 1) -> bytes:
    """A few bits turned over."""
    generator, changed = random.Random(seed), bytearray(content)
    for _ in range(count):
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def replace_at(content: Any, place: Sequence[str], value: Any) -> None:
    """Puts a value at a place in nested mappings; ABSENT removes what is there."""
    *above, last = place
    for key in above:
        content = content[key]
    if value is ABSENT:
        content.pop(last)
    else:
        content[last] = value


def damages(content: bytes, flips: int = 3) -> dict[str, bytes]:
    """Cut and flipped versions of a file by name."""
    found = {f"cut to {share:.0%}": cut(content, share) for share in (0.02, 0.3, 0.7, 0.98)}
    for seed in range(flips):
        found[f"flipped bit {seed}"] = flip(content, seed)
        found[f"flipped 20 bits {seed}"] = flip(content, seed, 20)
    return found


class Hostile:
    """Unpickled, it would leave a file behind in the current folder."""

    def __reduce__(self) -> tuple[object, ...]:
        return open, (RAN, "w")
