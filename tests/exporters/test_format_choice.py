"""Names of formats and of groups: what is made, and whose failure counts."""

import pytest

from exporters import DEFAULT_FORMATS, EXPORTERS
from exporters.format_choice import GROUPS, check_speed_limit, choose
from exporters.verdict import exit_code
from tests.parts import needs


@pytest.mark.parametrize(
    ("text", "names", "named"),
    [
        ("default", list(DEFAULT_FORMATS), set()),
        ("onnx,onnx-int8,onnx", ["onnx", "onnx-int8"], {"onnx", "onnx-int8"}),
        (" onnx , pt2", ["onnx", "pt2"], {"onnx", "pt2"}),
        pytest.param(
            "aoti,fp32", ["aoti", "torchscript", "pt2", "onnx"], {"aoti"}, marks=needs("aoti")
        ),
        pytest.param("int8", ["onnx-int8", "onnx-int8-qat"], set(), marks=needs("onnx-int8-qat")),
        ("all,default", list(EXPORTERS), set()),
    ],
)
def test_names_and_groups(text: str, names: list[str], named: set[str]) -> None:
    choice = choose(text)
    assert (choice.names, set(choice.named)) == (names, named)


@pytest.mark.parametrize("text", ["", ",", "onnx,", "onxx", "onnx,onxx", "ALL", "onnx;pt2", " "])
def test_what_is_no_format_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="unknown format '.*'; there are torchscript"):
        choose(text)


@needs("onnx-int8-qat")  # of a group of one none would be left
@pytest.mark.parametrize("group", sorted(GROUPS))
@pytest.mark.parametrize(
    ("verdict", "from_group", "named"),
    [("passed", 0, 0), ("unavailable", 0, 3), ("failed", 3, 3), ("unverified", 3, 3)],
)
def test_a_format_that_cannot_exist_here_fails_only_by_its_name(
    group: str, verdict: str, from_group: int, named: int
) -> None:
    """As without a compiler, without torchao, on Python 3.14, or for a network without graph."""
    names = GROUPS[group]
    passed = {name: {"verdict": "passed"} for name in names}
    for missing in names:
        artifacts = passed | {missing: {"verdict": verdict}}
        assert exit_code(artifacts, choose(group).requested(artifacts)) == from_group
        both = choose(f"{group},{missing}")
        assert exit_code(artifacts, both.requested(artifacts)) == named


def test_a_group_of_which_nothing_can_exist_has_not_passed() -> None:
    artifacts = dict.fromkeys(GROUPS["int8"], {"verdict": "unavailable"})
    assert exit_code(artifacts, choose("int8").requested(artifacts)) == 3


@pytest.mark.parametrize(
    ("text", "refused"),
    [("onnx-int8", True), ("int8", True), ("pt2,int8", True), ("all", False), ("pt2", False)],
)
def test_a_limit_of_speed_needs_what_it_is_compared_with(text: str, refused: bool) -> None:
    names = choose(text).names
    check_speed_limit(names, fail_if_slower=False)
    if not refused:
        check_speed_limit(names, fail_if_slower=True)
        return
    with pytest.raises(ValueError, match=r"--x\.fail_if_slower: .*: add it to --x\.formats"):
        check_speed_limit(names, True, "--x.")
