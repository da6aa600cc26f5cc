"""Which formats are asked for: by name, or by the name of a group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporters import DEFAULT_FORMATS, EXPORTERS
from exporters.verdict import UNAVAILABLE

QAT = "onnx-int8-qat"
GROUPS = {
    "default": tuple(name for name in DEFAULT_FORMATS if name in EXPORTERS),
    "all": tuple(EXPORTERS),
    "fp32": tuple(name for name in EXPORTERS if "int8" not in name),
    "int8": tuple(name for name in EXPORTERS if "int8" in name),
}


@dataclass(frozen=True)
class Choice:
    """Formats, each once; those that were named must come out, a group gives what it can."""

    names: list[str]
    named: frozenset[str]

    def requested(self, artifacts: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """The formats whose failure is a failure of the export."""
        return [
            name
            for name in self.names
            if name in self.named or artifacts[name]["verdict"] != UNAVAILABLE
        ]


def choose(text: str) -> Choice:
    """Names divided by commas, or the names of groups.

    Raises:
        ValueError: A name is unknown, or there is none.
    """
    parts = [part.strip() for part in text.split(",")]
    names = [name for part in parts for name in GROUPS.get(part, (part,))]
    unknown = [repr(name) for name in names if name not in EXPORTERS]
    if unknown:
        valid = ", ".join([*EXPORTERS, *GROUPS])
        raise ValueError(f"unknown format {', '.join(unknown)}; there are {valid}")
    return Choice(list(dict.fromkeys(names)), frozenset(parts) - GROUPS.keys())


def check_speed_limit(names: list[str], fail_if_slower: bool, flag: str = "--") -> None:
    """INT8 that must not be slower than FP32 needs FP32 beside it.

    Raises:
        ValueError: There is none to be timed against.
    """
    int8 = [name for name in names if name in GROUPS["int8"]]
    if fail_if_slower and int8 and "onnx" not in names:
        raise ValueError(
            f"{flag}fail_if_slower: {', '.join(int8)} is timed against onnx: add it to "
            f"{flag}formats"
        )
