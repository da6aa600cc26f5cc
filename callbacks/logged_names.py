"""Whether a name that something goes by is logged, by a module that does not announce its names."""

import difflib
from collections.abc import Collection
from typing import Literal

SMALLER_IS_BETTER = ("loss", "error")  # names with one of these words in them


def is_logged(
    group: str, monitor: str, is_given: bool, module: str, logged: Collection[str]
) -> bool:
    """Looks at what was logged until the first validation had ended.

    Args:
        group: Of the flags.
        monitor: The name.
        is_given: Whether the user asked for it; else the callback can do without.
        module: Name of the module's class.
        logged: Names.

    Raises:
        ValueError: The user asked for a name that was not logged; with the nearest one.
    """
    if monitor in logged or not is_given:
        return monitor in logged
    near = difflib.get_close_matches(monitor, logged, n=1, cutoff=0.3)
    raise ValueError(
        f"--{group}.monitor {monitor}: {module} has not logged that name by the end of its first "
        f"validation{f'; did you mean {near[0]}?' if near else ''} (logged: {words(logged)})"
    )


def words(logged: Collection[str]) -> str:
    return ", ".join(sorted(logged)) or "nothing"


def direction_of(monitor: str) -> Literal["min", "max"]:
    """Which values are better, as far as a name tells."""
    return "min" if any(word in monitor for word in SMALLER_IS_BETTER) else "max"
