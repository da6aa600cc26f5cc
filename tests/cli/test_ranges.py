"""Ranges in signatures: what lies inside, and that every number of ours has one."""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import pytest

from cli.chosen_classes import class_groups
from cli.flags import all_flags
from cli.parsing import build_parser, judge, known_types
from cli.ranges import fits, lies_in, ranges, without_ranges
from cli.settings import Setting
from train import CALLBACKS

# those of a fork may leave theirs out
NETWORKS = ("small_cnn", "cifar_resnet", "torchvision", "text_cnn", "bilstm", "text_transformer",
            "bag_of_embeddings")  # fmt: skip
DATA = ("digits", "mnist", "cifar10", "image_folder", "text_files", "bbc_news", "imdb", "ag_news")
# any finite number makes sense
UNBOUNDED = {"early_stopping.stopping_threshold", "data.text_columns", "data.label_column"}
UNBOUNDED |= {"data.levels"}  # of pictures, which may be negative


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">= 1", [1, 7, 1.5], [0, -1, 0.99]),
        ("> 0", [1e-9, 3], [0, -1]),
        ("0 <= x < 1", [0, 0.5], [1, -0.1]),
        ("0 < x <= 1", [1, 0.5], [0, 1.1]),
        ("-1 < x < 1", [0], [-1, 1]),
    ],
)
def test_inside(text: str, inside: list[float], outside: list[float]) -> None:
    assert all(lies_in(value, text) for value in inside)
    assert not any(lies_in(value, text) for value in outside)
    assert not lies_in(math.nan, text)


@pytest.mark.parametrize("text", ["", "1", "0..1", "x > 0", ">=1", "0 <= y < 1"])
def test_a_text_that_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no range|could not convert"):
        lies_in(1, text)


Share = Annotated[float, "0 <= x <= 1"]
Count = Annotated[int, ">= 0"]


@pytest.mark.parametrize(
    ("hint", "inside", "outside"),
    [
        (Count | Share | None, [0, 5, 0.5, 1.0, None], [-1, 7.5, -0.5]),
        (Share | Literal["auto"], ["auto", 0.0], ["other", 2.0]),
        (Count | bool, [True, False, 3], [-1]),
        (
            Literal["balanced"] | list[Share] | None,
            ["balanced", [], [0.0, 1.0], None],
            [[0.5, 2.0]],
        ),
        (Sequence[Count], [[1, 2], (1,)], [[1, -2]]),
        (tuple[Count, ...], [(1, 2)], [(1, -2)]),
        (float, [1.0, -3, 1e300], [math.inf, -math.inf, math.nan]),
        (int | None, [3, None], [2**63, -(2**70)]),
        (str, ["x"], []),
    ],
)
def test_values_fit_one_of_the_alternatives(hint: Any, inside: list, outside: list) -> None:
    assert all(fits(value, hint) for value in inside)
    assert not any(fits(value, hint) for value in outside)


def test_ranges_can_be_taken_out() -> None:
    hint = Literal["a"] | list[Share] | Count | None
    assert ranges(hint) == ["0 <= x <= 1", ">= 0"]
    assert without_ranges(hint) == Literal["a"] | list[float] | int | None
    assert without_ranges(int | str) == int | str


def hints(model: str = "small_cnn", data: str = "digits") -> dict[str, Any]:
    settings = [Setting("model.name", model, ""), Setting("data.name", data, "")]
    groups, problems = class_groups(settings, CALLBACKS)
    assert not problems
    return known_types(build_parser(groups, {"model": model, "data": data}))


def bare_numbers(hint: Any) -> bool:
    """Whether a hint takes a number without saying which."""
    if hint in (int, float):
        return True
    if hasattr(hint, "__metadata__"):
        return False
    return any(bare_numbers(part) for part in getattr(hint, "__args__", ()))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_number_of_a_network_has_a_range(name: str) -> None:
    found = {n for n, hint in hints(model=name).items() if n[:6] == "model." and bare_numbers(hint)}
    assert not found


@pytest.mark.parametrize("name", DATA)
def test_every_number_of_a_data_source_has_a_range(name: str) -> None:
    found = {n for n, hint in hints(data=name).items() if n[:5] == "data." and bare_numbers(hint)}
    assert found - UNBOUNDED == set()


def test_every_other_number_has_a_range() -> None:
    parts = ("optimizer", "schedule", "loss", *CALLBACKS)
    names = {
        n: hint for n, hint in hints().items() if n.partition(".")[0] in (*parts, *all_flags())
    }
    found = {name for name, hint in names.items() if bare_numbers(hint)}
    assert found - UNBOUNDED - {"devices"} == set()


def just_outside(text: str) -> Iterator[float]:
    """The nearest values that a range leaves out."""
    words = text.split()
    if len(words) == 2:
        bounds = [(words[0], float(words[1]))]
    else:
        turned = {"<": ">", "<=": ">="}[words[1]]
        bounds = [(turned, float(words[0])), (words[3], float(words[4]))]
    for sign, bound in bounds:
        yield bound if len(sign) == 1 else bound + (1 if sign == "<=" else -1)


@pytest.mark.parametrize(
    ("model", "data"),
    [("small_cnn", "digits"), ("cifar_resnet", "image_folder"), ("text_cnn", "text_files"),
     ("bilstm", "bbc_news"), ("text_transformer", "digits"), ("bag_of_embeddings", "digits")],
)  # fmt: skip
def test_what_lies_just_outside_of_each_range_is_refused_with_it(model: str, data: str) -> None:
    groups, _ = class_groups(
        [Setting("model.name", model, ""), Setting("data.name", data, "")], CALLBACKS
    )
    parser = build_parser(groups, {"model": model, "data": data})
    for name, hint in known_types(parser).items():
        for text in ranges(hint):
            for value in just_outside(text):
                if fits(value, hint) or (value == int(value) and fits(int(value), hint)):
                    continue  # another alternative takes it
                written = str(int(value)) if value == int(value) else str(value)
                candidates = [Setting(name, w, "") for w in (written, f"[{written}]")]
                problems = [judge(parser, [setting]) for setting in candidates]
                lines = [line for found in problems for line in found.outside]
                assert lines, (name, text, value)
                assert f"--{name} must be " in lines[0]
                assert text in lines[0]
