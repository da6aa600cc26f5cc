"""Rows from every kind of file, and the message that each kind of damage gives."""

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamodules.text_layout import one_source
from datamodules.text_readers import Columns, TextSource

Rows = list[tuple[str, str, int]]


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


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_json_lines_plain_and_compressed(tmp_path: Path, name: str) -> None:
    lines = [{"text": "good film", "label": 1}, {"text": "bad", "label": 0, "more": None}]
    content = "\n\n".join(map(json.dumps, lines)).encode()
    if name.endswith(".gz"):
        content = gzip.compress(content)
    if name.endswith(".zst"):
        content = pa.compress(content, codec="zstd", asbytes=True)
    assert rows(write(tmp_path, name, content)) == [("good film", "1", 1), ("bad", "0", 3)]


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"label": [0, 1], "review": ["bad", "good"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == [("bad", "0", 1), ("good", "1", 2)]
    pq.write_table(pa.table({"label": [0, None], "text": ["b", "g"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet, row 2: an empty cell"):
        rows(tmp_path / "a.parquet")


def test_labelled_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.train", "DESC:manner How did it ?\nNUM:count How many ?\n")
    assert rows(path) == [("How did it ?", "DESC", 1), ("How many ?", "NUM", 2)]
    path = write(tmp_path, "b.train", "DESC:manner How did it ?\nno label\n")
    with pytest.raises(ValueError, match=r"b.train:2: expected 'LABEL:fine text', got 'no label'"):
        rows(path)


FAULTS: dict[str, tuple[str, str | bytes, str]] = {
    "one column": ("a.csv", "text\nx\n", "a.csv has one column (0 (text)), but text and label"),
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
        "text or label column not told; its columns are 0 (a), 1 (b)",
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


def test_columns_that_do_not_exist_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "body,class\nx,y\n")
    with pytest.raises(ValueError, match="no column 'txt'; its columns are body, class: name them"):
        rows(path, Columns(text=("txt",), label="class"))


def test_a_line_of_a_hundred_megabytes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", b"text,label\n" + b"x" * 100_000_000 + b",y\n")
    with pytest.raises(ValueError, match=r"a.csv:2: a text of more than 16,777,216 characters"):
        rows(path)
