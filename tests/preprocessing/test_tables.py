"""What divides cells, and when a first row cannot be data; the same for training and predict.py."""

from pathlib import Path

import pytest

from preprocessing.tables import (
    NUM_LINES,
    Declared,
    find_column,
    first_lines,
    holds_names,
    one_separator,
    table_form,
)


def rows(text: str) -> list[list[str]]:
    return [line.split(",") for line in text.split("/")]


SENTENCES = "a film/so good/so bad/too long/well done/never again/why not/yes please/it is/oh no"
LABELLED = "/".join(f"{text},{'ab'[n % 2]}" for n, text in enumerate(SENTENCES.split("/")))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("text,label/x,a", True),
        ("Title,Class/x,a", True),
        (f"comment,kind/{LABELLED}", True),  # "kind" is none of the few kinds that follow
        (f"v1,v2/{LABELLED}", True),
        ("v1,v2,,/ham,ok,,/spam,win,,", True),
        ("id,comment/1,x/2,y", True),
        ("comment,stars/x,1/y,0.5", True),
        ("comment,label/x,a/y,b", True),
        ("text/some words/more words", True),
        ("Kommentar,Würdigung/x,1/y,2", True),
        (LABELLED, False),
        ("fine,1/bad,0/so so,1", False),
        ("3,Title,A text/4,B,b", False),
        ("x,y/z,n/u,y", False),  # y is a usual name, but comes again
        ("great,pos/bad,neg/awful,neg", False),  # too few to show what pos is
        ("a film,none/so bad,1/too long,2", False),
        ("the longest review that anybody wrote of it,b/x,1/y,2", False),
        ("same,same/x,1/y,2", False),
        ("only row", False),
    ],
)
def test_a_first_row_that_cannot_be_data(table: str, expected: bool) -> None:
    assert holds_names(rows(table)) is expected


@pytest.mark.parametrize(
    ("name", "content", "separator", "quoted"),
    [
        ("a.csv", "x,y\n1,2\n", ",", True),
        ("a.csv", "x;y\n1;2\n", ";", True),
        ("a.csv", "x\ty\n1\t2\n", "\t", True),
        ("a.csv", "x|y\n1|2\n", "|", True),
        ("a.tsv", "x\ty\n1\t2\n", "\t", False),
        ("a.tsv.gz", "x\ty\n1\t2\n", "\t", False),
        ("a.tsv", "x,y\n1,2\n", ",", True),
        ("a.csv", "text\none; two\nthree\n", ",", True),  # one column of texts
        ("a.csv", "x;y\n" + "1;2\n" * 30 + "damaged\n", ";", True),
        ("a.csv", "x,y\n1,2,3\n1\n1;2\n", ",", True),  # damaged: it stays what its name says
        ("a.csv", 'x;y\n"a;b, c";2\n"line\nend";3\n', ";", True),
        ("a.csv", "", ",", True),
    ],
)
def test_what_divides_cells(name: str, content: str, separator: str, quoted: bool) -> None:
    form = table_form(Path(name), content.splitlines(keepends=True), (), Declared())
    assert (form.separator, form.quoted) == (separator, quoted)
    usual = "\t" if ".tsv" in name else ","
    assert any("between the cells" in said for said in form.found) == (separator != usual)


def test_what_is_declared_is_neither_looked_for_nor_said() -> None:
    lines = ["text;label\n", "x;a\n"]
    form = table_form(Path("a.csv"), lines, (), Declared(",", False, True))
    assert form.found == ()
    assert (form.separator, form.quoted, form.first) == (",", False, ["text;label"])
    form = table_form(Path("a.csv"), ["x,1\n", "y,2\n"], ["x"], Declared())
    assert (form.has_header, form.found) == (True, ())  # somebody asks for x by its name
    form = table_form(Path("a.csv"), ["x,1\n", "y,2\n"], ["1", 0], Declared(header=False))
    assert (form.has_header, form.found) == (False, ())


def test_a_number_never_makes_a_header() -> None:
    lines = ["1,a text\n", "0,more\n", "1,words\n"]
    form = table_form(Path("a.csv"), lines, ["1", "2", 0], Declared())
    assert form.has_header is False
    assert "taken for data, not column names (--header true says otherwise)" in form.found[0]


def test_only_the_start_is_looked_at() -> None:
    lines = first_lines(f"row {n};{n}\n" for n in range(10_000))
    assert len(lines) == NUM_LINES
    cut = [*lines[:-1], '"a row that goes on;']
    assert table_form(Path("a.csv"), cut, (), Declared()).separator == ";"
    assert len(first_lines("x" * 1_000_000 for _ in range(100))) == 1


@pytest.mark.parametrize(
    ("wanted", "place"), [("b", 1), (" b", 1), ("1", 1), (0, 0), ("e\u0301", 2), ("0", 0)]
)
def test_a_column_by_name_or_place(wanted: str | int, place: int) -> None:
    assert find_column(wanted, ["1", " b ", "\xe9"], has_header=True) == place


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("c", "no column 'c'; its columns are 0"), (3, "no column 3"), (-1, "no column -1")],
)
def test_a_column_that_is_not_there(wanted: str | int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_column(wanted, ["a", "b", "a"], has_header=True)
    with pytest.raises(ValueError, match="2 columns are called 'a'; give a number: 0 or 2"):
        find_column("a", ["a", "b", "a"], has_header=True)
    with pytest.raises(ValueError, match="no column 'a'"):
        find_column("a", ["a", "b"], has_header=False)


def test_separators_as_they_are_given() -> None:
    assert [one_separator(s, "--s") for s in (None, ";", "tab", "\\t", "\t")] == [
        None, ";", "\t", "\t", "\t"
    ]  # fmt: skip
    for wrong in ("", ";;", '"', "\n"):
        with pytest.raises(ValueError, match="--s must be one character, as ';', or tab"):
            one_separator(wrong, "--s")
