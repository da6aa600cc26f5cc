"""Labels that are one though they look like two, and labels that are several in one."""

import pytest

from datamodules.findings import texts
from datamodules.image_listing import join
from datamodules.label_spelling import joined, near, number, spelling_findings, visible


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("a", "a"),
        ("  a\t", "a"),
        ("a \xa0 b", "a b"),
        ("a\u200bb", "ab"),
        ("\ufeffa\u200d", "a"),
        ("a\u00ad", "a"),
        ("\u200ea\u202c", "a"),
        ("e\u0301", "\xe9"),
        ("e\u200d\u0301", "\xe9"),
        ("\u2764\ufe0f", "\u2764"),
        ("Ａ", "Ａ"),  # wide letters can be seen
        ("", ""),
    ],
)
def test_what_cannot_be_seen_is_taken_away(label: str, expected: str) -> None:
    assert visible(label) == expected
    assert visible(expected) == expected


@pytest.mark.parametrize(
    ("labels", "same"),
    [
        (["1", "1.0", "01", "+1", "1e0", "１"], True),
        (["0", "-0", "0.0", ".0", "0."], True),
        (["0.1", "0.10", "1e-1"], True),
        (["1" * 60 + "1", "1" * 60 + "2"], False),
        (["1", "1,0"], False),
        (["nan", "NaN"], False),
        (["1/2", "0.5"], False),
        (["1e999", "1e998"], False),
        (["9" * 5000, "8" * 5000], False),
    ],
)
def test_numbers_are_compared_by_value(labels: list[str], same: bool) -> None:
    assert (len({number(label) for label in labels}) == 1) == same


def test_the_most_frequent_spelling_stands_for_all() -> None:
    counts = {"Pos": 3, "pos": 9, "POS": 9, "neg": 1, "1.0": 5, "1": 2}
    assert joined(counts, []) == {label: label for label in counts}
    assert joined(counts, ["case", "number"]) == {
        "Pos": "POS", "pos": "POS", "POS": "POS", "neg": "neg", "1.0": "1.0", "1": "1.0",
    }  # fmt: skip


def test_a_missing_label_may_be_a_known_one() -> None:
    assert near("Pos", ["neg", "pos"]).endswith("from 'pos' only in case: --data.join_labels case")
    assert near("1.0", ["0", "1"]).endswith("--data.join_labels number")
    assert near("x", ["a", "b"]) == ""


FINDINGS: dict[str, tuple[dict[str, int], list[str]]] = {
    "nothing": ({"a": 3, "b": 2, "Sci/Tech": 1, "yes, no": 1, "a-b": 1, "|": 2}, []),
    "case": (
        {"Pos": 3, "pos": 1200, "neg": 9},
        ["classes differ only in case: 'Pos' (3) and 'pos' (1,200); --data.join_labels case joins"],
    ),
    "numbers": (
        {"0": 3, "0.0": 4, "1": 2},
        ["only in how a number is written: '0' (3) and '0.0' (4); --data.join_labels number joins"],
    ),
    "what cannot be seen": (
        {"cat": 3, "cat\u200b": 4},
        ["only in what cannot be seen: 'cat' (3) and 'cat\\u200b' (4); if they are one, give"],
    ),
    "several labels in one": (
        {"a": 3, "b": 3, "a|b": 2, "b;c": 1, "d; e": 7},
        ["3 class names look like several labels in one, and are classes of their own: 'a|b' (2), "
         "'b;c' (1), 'd; e' (7); each sample has one label here"],
    ),
    "lists as they are written": (
        {"['a']": 3, "['a', 'b']": 3, '["b"]': 2, "[x": 1},
        ["class names look like several labels in one, and are classes of their own: \"['a']\" ("],
    ),
    "with commas, where their parts are labels": (
        {"a": 3, "b": 3, "a, b": 2, "so, what": 1},
        ["1 class names look like several labels in one, and are classes of their own: 'a, b' (2)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FINDINGS)
def test_findings(name: str) -> None:
    counts, expected = FINDINGS[name]
    found = spelling_findings(counts, has_flag=True)
    assert len(found) == len(expected)
    for text, part in zip(found, expected, strict=True):
        assert part in text


def test_pictures_have_no_flag_for_it() -> None:
    (found,) = spelling_findings({"Cat": 3, "cat": 2}, has_flag=False)
    assert found.endswith("if they are one, give them one name")


def test_names_of_classes_of_pictures_are_cleaned_too() -> None:
    """As macOS writes them, or a table with stray characters."""
    train = {"caf\xe9": ["1.png"], "cafe\u0301": ["2.png", "3.png"], "dog": ["4.png"]}
    listed = join({"train": train, "val": {"dog\u200b": ["5.png"]}}, [], [], "here")
    assert listed.class_names == ["caf\xe9", "dog"]
    assert [path.decode() for path in listed.splits["train"].paths] == [
        "1.png", "2.png", "3.png", "4.png"
    ]  # fmt: skip
    assert listed.splits["val"].targets.tolist() == [1]
    assert texts(listed.findings)[1:] == [
        "2 labels of train lost blanks or characters that cannot be seen: 'cafe\\u0301' (2)",
        "1 labels of val lost blanks or characters that cannot be seen: 'dog\\u200b' (1)",
    ]
