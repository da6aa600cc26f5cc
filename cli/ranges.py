"""The range of a number, as it stands in a signature: `Annotated[float, "0 <= x < 1"]`.

A setting without such a mark takes any number that is finite.
"""

import math
import operator
import re
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
ONE_SIDED = re.compile(r"([<>]=?) (\S+)")
TWO_SIDED = re.compile(r"(\S+) (<=?) x (<=?) (\S+)")
LARGEST = 2**63  # of a whole number, which a tensor still holds


def fits(value: Any, hint: Any) -> bool:
    """Whether a value of the right type lies in the range of one of the hint's alternatives."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return fits(value, arguments[0]) and all(lies_in(value, text) for text in arguments[1:])
    if is_union(hint):
        return any(fits(value, part) for part in arguments)
    if isinstance(origin, type):
        parts = [part for part in arguments if part is not ...]
        return isinstance(value, origin) and (
            not isinstance(value, (list, tuple))
            or all(any(fits(item, part) for part in parts) for item in value)
        )
    if hint is float:
        return is_number(value) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and is_number(value) and abs(value) < LARGEST
    if origin is Literal:
        return value in arguments
    return hint not in (bool, str, type(None)) or isinstance(value, hint)


def lies_in(value: Any, text: str) -> bool:
    """Whether a number lies in a range such as ">= 1" or "0 < x <= 1".

    Raises:
        ValueError: The text is no range.
    """
    if match := ONE_SIDED.fullmatch(text):
        return COMPARISONS[match[1]](value, float(match[2]))
    if match := TWO_SIDED.fullmatch(text):
        low, above, below, high = match.groups()
        return COMPARISONS[above](float(low), value) and COMPARISONS[below](value, float(high))
    raise ValueError(f"{text!r} is no range; write '>= 1' or '0 <= x < 1'")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_union(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union


def ranges(hint: Any) -> list[str]:
    """Every range that stands in a hint."""
    own = list(typing.get_args(hint)[1:]) if typing.get_origin(hint) is Annotated else []
    parts = [part for part in typing.get_args(hint) if not isinstance(part, str)]
    return [*own, *(text for part in parts for text in ranges(part))]


def names_in(hint: Any) -> list[str]:
    """The words that a hint takes."""
    if typing.get_origin(hint) is Literal:
        return [name for name in typing.get_args(hint) if isinstance(name, str)]
    return [name for part in typing.get_args(hint) for name in names_in(part)]


def without_ranges(hint: Any) -> Any:
    """The hint as it would be without them, for the help text."""
    if not ranges(hint):
        return hint
    if typing.get_origin(hint) is Annotated:
        return without_ranges(typing.get_args(hint)[0])
    parts = tuple(without_ranges(part) for part in typing.get_args(hint))
    if is_union(hint):
        return typing.Union[parts]  # noqa: UP007  # the parts are known only here
    return typing.get_origin(hint)[parts]
