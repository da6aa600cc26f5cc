"""Rows from every kind of file, and the message that each kind of damage gives."""

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamodules.text_columns import Columns
from datamodules.text_layout import one_source
from datamodules.text_readers import Label, TextSource

Rows = list[tuple[str, Label, int]]


def rows(path: Path, columns: Columns | None = None) -> Rows:
    source: TextSource = one_source(path, ())
    return [(text, label, line) for text, label, _, line in source.rows(columns or Columns())]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


EXPECTED = [("good film", "pos", 2), ("bad, very", "neg", 3)]


def test_csv_finds_columns_by_name_and_numbers_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'id,Label,Text\n1,pos,good film\n2,neg,"bad, very"\n')
    assert rows(path) == EXPECTED


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("auto", b"\xef\xbb\xbftext,label\ncaf\xc3\xa9,a\n"),
        ("auto", "text,label\ncafé,a\n".encode("utf-16")),
        ("cp1252", b"text,label\ncaf\xe9,a\n"),
    ],
)
def test_byte_order_marks_and_encodings(tmp_path: Path, encoding: str, content: bytes) -> None:
    path = write(tmp_path, "a.csv", content)
    assert rows(path, Columns(encoding=encoding)) == [("café", "a", 2)]


@pytest.mark.parametrize(("byte", "likely"), [(b"\xe9", "cp1252"), (b"\x85", "latin-1")])
def test_an_undecodable_byte_is_located(tmp_path: Path, byte: bytes, likely: str) -> None:
    path = write(tmp_path, "a.csv", b"text,label\nfine,a\nca" + byte + b"f,a\n")
    message = (
        f"{path}:3: byte 0x{byte.hex()} at column 3 is not utf-8; the file is likely {likely}: "
        f"add --data.encoding {likely}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        rows(path)
    replaced = rows(path, Columns(encoding_errors="replace"))
    assert replaced[1] == ("ca\ufffdf", "a", 3)


def test_columns_without_header_are_numbered_and_joined(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", '"3","Title","A text\nin two lines"\n"4","B","b \\"\n')
    expected = [("Title A text\nin two lines", "3", 1), ("B b \\", "4", 3)]
    assert rows(path, Columns(text=(1, 2), label=0)) == expected
    assert rows(path, Columns(text=("1", "2"), label="0")) == expected  # as flags give them


def test_a_header_can_be_forced_or_denied(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "text,label\nx,y\n")
    assert rows(path, Columns(text=(0,), label=1, header=False))[0] == ("text", "label", 1)
    assert rows(path, Columns(text=(0,), label=1, header=True)) == [("x", "y", 2)]


def test_tsv_takes_quotes_as_text(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 'a "quoted film\t1\n\nother\t0\n')
    assert rows(path, Columns(text=(0,), label=1)) == [
        ('a "quoted film', "1", 1),
        ("other", "0", 3),
    ]


SMS = 'v1,v2,,,\nham,"Ok lar, \xe9t\xe9",,,\nspam,Free entry,,,\nham,So late,now,,\n'
# each with how columns are asked for, the rows that are read, and what is said
FORMS: dict[str, tuple[str, bytes, Columns, Rows, str]] = {
    "a header without known names, columns by number": (
        "spam.csv", SMS.encode("latin-1"), Columns(("1",), "0", encoding="latin-1"),
        [("Ok lar, \xe9t\xe9", "ham", 2), ("Free entry", "spam", 3), ("So late", "ham", 4)],
        "text from 1 (v2), label from 0 (v1); not used: 2 (no name), 3 (no name), 4 (no name); the "
        "first row is taken for column names (--data.header false says otherwise)",
    ),
    "the same by name": (
        "spam.csv", SMS.encode(), Columns(("v2",), "v1"),
        [("Ok lar, \xe9t\xe9", "ham", 2), ("Free entry", "spam", 3), ("So late", "ham", 4)],
        "text from 1 (v2), label from 0 (v1); not used: 2 (no name), 3 (no name), 4 (no name)",
    ),
    "no header, numbers": (
        "a.tsv", b"fine\t1\nnot fine\t0\nok\t1\n", Columns((0,), 1),
        [("fine", "1", 1), ("not fine", "0", 2), ("ok", "1", 3)],
        "text from column 0, label from column 1; the first row is taken for data, not column "
        "names (--data.header true says otherwise)",
    ),
    "a number is a place, also where a column is called so": (
        "a.csv", b"1,0\nx,a\ny,b\n", Columns(("0",), "1", header=True),
        [("x", "a", 2), ("y", "b", 3)], "text from 0 (1), label from 1 (0)",
    ),
    "Excel": (
        "a.csv", b"\xef\xbb\xbftext;label\nso, so;a\n\"x;y\";b\n", Columns(),
        [("so, so", "a", 2), ("x;y", "b", 3)],
        "text from 0 (text), label from 1 (label); ';' between the cells (--data.separator says "
        "otherwise); the first row is taken for column names (--data.header false says otherwise)",
    ),
    "Excel without header, commas in the first text": (
        "a.csv", b"a, b, c;1\nx;0\ny, z;1\n", Columns((0,), 1),
        [("a, b, c", "1", 1), ("x", "0", 2), ("y, z", "1", 3)],
        "text from column 0, label from column 1; ';' between the cells (--data.separator says "
        "otherwise); the first row is taken for data, not column names (--data.header true says "
        "otherwise)",
    ),
    "tabs in a .csv, with quotes": (
        "a.csv", b'text\tlabel\n"x\ty"\ta\n', Columns(("text",)), [("x\ty", "a", 2)],
        "text from 0 (text), label from 1 (label); tabs between the cells (--data.separator says "
        "otherwise)",
    ),
    "a separator that nobody would guess": (
        "a.csv", b"text~label\nx~a\n", Columns(("text",), separator="~"), [("x", "a", 2)],
        "text from 0 (text), label from 1 (label)",
    ),
    "a separator against the looks": (
        "a.csv", b"text;label;b\nx;a;c\n", Columns((0,), 1, separator=",", header=False),
        [], "",
    ),
    "the label in the text": (
        "a.csv", b"text,label\nx,a\n", Columns((0, 1), "label"), [("x a", "a", 2)],
        "text from 0 (text), 1 (label), label from 1 (label); the text holds the label",
    ),
    "blanks around names": (
        "a.csv", b"id, Text , Label\n1,x,a\n", Columns(), [("x", "a", 2)],
        "text from 1 (Text), label from 2 (Label); not used: 0 (id); the first row is taken for "
        "column names (--data.header false says otherwise)",
    ),
    "JSON": (
        "a.jsonl", b'{"id": 1, "text": "x", "label": true}\n', Columns(), [("x", True, 1)],
        "text from 1 (text), label from 2 (label); not used: 0 (id)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_what_a_look_decides_is_read_and_said(tmp_path: Path, form: str) -> None:
    name, content, columns, expected, said = FORMS[form]
    path = write(tmp_path, name, content)
    if not expected:
        with pytest.raises(ValueError, match="no column 1; its columns are 0"):
            rows(path, columns)
        return
    assert rows(path, columns) == expected
    assert str(one_source(path, ()).chosen(columns)) == said


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_json_lines_plain_and_compressed(tmp_path: Path, name: str) -> None:
    lines = [{"text": "good film", "label": 1}, {"text": "bad", "label": 0, "more": None}]
    content = "\n\n".join(map(json.dumps, lines)).encode()
    if name.endswith(".gz"):
        content = gzip.compress(content)
    if name.endswith(".zst"):
        content = pa.compress(content, codec="zstd", asbytes=True)
    assert rows(write(tmp_path, name, content)) == [("good film", 1, 1), ("bad", 0, 3)]


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"label": [0, 1], "review": ["bad", "good"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == [("bad", 0, 1), ("good", 1, 2)]
    pq.write_table(pa.table({"label": [0, None], "text": ["b", "g"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet, row 2: no value for 'label'"):
        rows(tmp_path / "a.parquet")


def test_labelled_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.train", "DESC:manner How did it ?\nNUM:count How many ?\n")
    assert rows(path) == [("How did it ?", "DESC", 1), ("How many ?", "NUM", 2)]
    path = write(tmp_path, "b.train", "DESC:manner How did it ?\nno label\n")
    with pytest.raises(ValueError, match=r"b.train:2: expected 'LABEL:fine text', got 'no label'"):
        rows(path)


FAULTS: dict[str, tuple[str, str | bytes, str]] = {
    "one column": (
        "a.csv",
        "text\nx\n",
        "no column is told to hold the label; its columns are 0 (text); text and label are needed",
    ),
    "unclosed quote": (
        "a.csv",
        'text,label\nx,y\n"open,y\nx,y\n',
        "a.csv:3: a quote that opens in this row is never closed; where quotes are part of",
    ),
    "text after a quote": ("a.csv", 'text,label\n"x"y,z\n', "a.csv:2: ',' expected after '\"'"),
    "rows of other length": (
        "a.csv",
        "text,label\na,b\nc\nd,e,f\ng,h\n" + "i\n" * 9,
        "a.csv: expected 2 columns, but line 3 has 1, line 4 has 3, line 6 has 1, line 7 has 1, "
        "line 8 has 1",
    ),
    "unknown columns": (
        "a.csv",
        "a,b\nx,y\n",
        "no column is told to hold the text; its columns are 0 (a), 1 (b); name them by --data",
    ),
    "NUL bytes": ("a.csv", "text,label\nx\0,y\n", "a.csv:2: a NUL byte: the file is binary, or"),
    "broken JSON": ("a.jsonl", '{"text": "x", "label": 1}\n{"text"\n', "a.jsonl:2: not JSON: "),
    "JSON list": ("a.jsonl", "[1]\n", "a.jsonl:1: expected a JSON object, got '[1]'"),
    "endless JSON": ("a.jsonl", "[" * 100_000, "a.jsonl:1: not JSON: maximum recursion depth"),
    "huge number": ("a.jsonl", '{"text": ' + "9" * 9999 + "}", "a.jsonl:1: not JSON: Exceeds the"),
    "missing value": (
        "a.jsonl",
        '{"text": "x", "label": 1}\n{"text": "x"}\n',
        "a.jsonl:2: no value for 'label'",
    ),
    "a list as label": (
        "a.jsonl",
        '{"text": "x", "label": "a"}\n{"text": "x", "label": ["a", "b"]}\n',
        'a.jsonl:2: \'label\' holds ["a", "b"], expected one label: a text, a number, true or',
    ),
    "an object as text": (
        "a.jsonl",
        '{"text": {"de": "x"}, "label": 1}\n',
        'a.jsonl:1: \'text\' holds {"de": "x"}, expected a text',
    ),
    "true as text": ("a.jsonl", '{"text": true, "label": 1}\n', "'text' holds true, expected a"),
    "NaN as label": ("a.jsonl", '{"text": "x", "label": NaN}\n', "a.jsonl:1: 'label' holds NaN, e"),
    "a column twice": (
        "a.csv",
        "text,text,label\nx,y,a\n",
        "2 columns are called 'text'; give a number: 0 or 1",
    ),
    "text as label": (
        "a.csv",
        "label,class\nx,y\n",
        "no column is told to hold the text; its columns are 0 (l",
    ),
    "no Parquet": ("a.parquet", b"PAR0", "a.parquet cannot be read: "),
    "cut gzip": (
        "a.csv.gz",
        gzip.compress(b"text,label\n" * 99)[:-20],
        "a.csv.gz cannot be read: ",
    ),
    "empty": ("a.txt", "", "a.txt is empty"),
    "unknown form": ("a.txt", "just words\n", "its first line is b'just words"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_file_gives_one_message(tmp_path: Path, fault: str) -> None:
    name, content, message = FAULTS[fault]
    path = write(tmp_path, name, content)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        rows(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns((-1,), 1), "no column -1; its columns are"),
        (Columns((0,), 2), "no column 2; its columns are 0"),
        (Columns((0,), 0), r"a column is asked for twice, as text \[0\] and label \[0\]"),
        (Columns(("text",), "text"), "a column is asked for twice"),
        (Columns(("text", 0), 1), "a column is asked for twice"),
        (Columns(("text", "text"), 1), "a column is asked for twice"),
    ],
)
@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", "text,label\nx,y\n"), ("a.jsonl", '{"text": "x", "label": "y"}\n')],
)
def test_columns_that_cannot_be(
    tmp_path: Path, columns: Columns, message: str, name: str, content: str
) -> None:
    with pytest.raises(ValueError, match=message):
        rows(write(tmp_path, name, content), columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": [["x"]], "label": ["a"]}, "row 1: 'text' holds"),
        ({"text": ["x"], "label": [["a"]]}, "row 1: 'label' holds"),
        ({"text": ["x"], "label": [{"a": 1}]}, "row 1: 'label' holds"),
        ({"text": ["x"], "label": [float("nan")]}, "row 1: 'label' holds NaN"),
        ({"text": [b"\xff"], "label": ["a"]}, "is not utf-8"),
    ],
)
def test_parquet_cells_that_are_no_text(tmp_path: Path, columns: dict, message: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=message):
        rows(tmp_path / "a.parquet")


def test_parquet_bytes_are_text(tmp_path: Path) -> None:
    """As some writers leave strings unmarked."""
    pq.write_table(pa.table({"text": ["\xe9".encode()], "label": [b"a"]}), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == [("\xe9", "a", 1)]


def test_columns_that_do_not_exist_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "body,class\nx,y\n")
    with pytest.raises(
        ValueError, match=r"no column 'txt'; its columns are 0 \(body\), 1 \(class\); name"
    ):
        rows(path, Columns(text=("txt",), label="class"))


def test_a_first_row_that_is_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    novel = "a line; of a novel\n" * 30_000
    path = write(tmp_path, "a.csv", f'"{novel}",a\nshort,b\n')
    assert rows(path, Columns((0,), 1)) == [(novel, "a", 1), ("short", "b", 30_002)]


@pytest.mark.parametrize("first", ['"never closed,label\n', '"text"s,label\n'])
def test_a_damaged_first_row_is_told_as_such(tmp_path: Path, first: str) -> None:
    with pytest.raises(ValueError, match=r"a.csv:1: .*; where quotes are part of the text"):
        rows(write(tmp_path, "a.csv", first + "x,a\ny,b\n"))


def test_a_line_of_a_hundred_megabytes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", b"text,label\n" + b"x" * 100_000_000 + b",y\n")
    with pytest.raises(ValueError, match=r"a.csv:2: a text of more than 16,777,216 characters"):
        rows(path)
