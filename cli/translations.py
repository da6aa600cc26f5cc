"""Functions that translate operators, ours and the user's, which torch's ONNX exporter lacks."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from exporters import fit_check
from lightning_modules.deployed import resolve

OURS = {"foundry": "ops.onnx_translations.TABLE"}  # by the namespace; imported where it occurs
FORM = "{torch operator: function}, such as {torch.ops.mine.cube.default: cube}"


def onnx_translations(
    path: str | None, allow_external_code: bool, operators: Collection[str]
) -> Mapping[Any, Callable[..., Any]]:
    """The table for a model with these operators.

    Args:
        path: Import path of the user's own table; its entries go before ours.
        allow_external_code: Whether it may lie outside this project.
        operators: Such as "mine::cube".

    Raises:
        ValueError: The path leads to nothing, or to no such table.
    """
    table: dict[Any, Callable[..., Any]] = {}
    for namespace, ours in OURS.items():
        if any(operator.startswith(f"{namespace}::") for operator in operators):
            table |= resolve(ours)
    return table | own_translations(path, allow_external_code)


def own_translations(path: str | None, allow_external_code: bool) -> dict[Any, Callable[..., Any]]:
    """The user's own table; without a path an empty one.

    Raises:
        ValueError: As above.
    """
    if not path:
        return {}
    try:
        own = resolve(path, allow_external_code)
    except ValueError as error:
        raise ValueError(f"onnx_translations: {error}") from error
    if not isinstance(own, Mapping) or not own:
        raise ValueError(f"onnx_translations: {path!r} is {own!r:.60}, expected {FORM}")
    for operator, function in own.items():
        if not hasattr(operator, "overloadpacket") or not callable(function):
            raise ValueError(
                f"onnx_translations: {path!r} has {operator!r:.80}: {function!r:.60}, expected "
                f"{FORM}"
            )
    return {**own}


# what a fit asks before it starts
check_export = partial(fit_check.check_export, find_translations=onnx_translations)
