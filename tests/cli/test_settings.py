"""What is known of a command line before its settings are judged."""

import pytest

from cli.settings import is_on, joined, overridden, read_arguments


def test_a_flag_that_is_given_twice_is_told() -> None:
    line = "--seed 1 --max_epochs 2 --seed 2 --config a --config b --compile --compile --model a"
    assert overridden([*line.split(), "--model.name", "b"]) == [
        "--seed 1 gives way to 2, which was given later",
        "--model.name a gives way to b, which was given later",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--debug", True), ("--debug true", True), ("--debug=true --seed 1", True),
        ("--debug false", False), ("--seed 1", False), ("stray --debug", True), ("stray", False),
    ],
)  # fmt: skip
def test_a_switch_is_known_before_anything_else(line: str, expected: bool) -> None:
    assert is_on(line.split(), "debug") is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--callbacks a.B", ["a.B"]),
        ("--callbacks a.B --seed 1 --callbacks c.D", ["1", "[a.B, c.D]"]),
        ("--callbacks [a.B,c.D] --callbacks e.F", ["[a.B, c.D, e.F]"]),
        ("--callbacks [] --seed 1", ["[]", "1"]),
    ],
)
def test_callbacks_may_be_given_repeatedly(line: str, expected: list[str]) -> None:
    assert [s.value for s in joined(read_arguments(line.split()), "callbacks")] == expected
    assert overridden(line.split()) == []
