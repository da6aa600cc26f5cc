"""What predict.py reads: order, names, tables by training's rules, faults kept in their place."""

import gzip
import io
import os
import sys
from pathlib import Path

import pytest

from datamodules.text_readers import Columns, read_table
from preprocessing.reader import make_reader, text_of
from preprocessing.sources import find_samples
from preprocessing.text import char_tokenizer


def find(*names: object, columns: tuple[str, ...] = (), kind: str = "text", texts=()) -> list:
    """(name, content) with the message in the place of a fault."""
    found = find_samples(texts, [str(n) for n in names], columns, kind, (".txt",))
    return [(name, str(c) if isinstance(c, ValueError) else c) for name, c in found]


def test_texts_files_and_folders_in_order(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/10.txt", "b/c/1.txt", "b/a/1.txt", "b/x.png", "a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    found = find(tmp_path / "b", tmp_path / "a.txt", texts=["one\n two", "x" * 70])
    assert found[:2] == [("one two", "one\n two"), ("x" * 59 + "…", "x" * 70)]
    expected = ["b/10.txt", "b/2.txt", "b/a/1.txt", "b/c/1.txt", "a.txt"]
    assert [content for _, content in found[2:]] == [tmp_path / name for name in expected]


def test_a_folder_with_a_loop_ends(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert find(tmp_path) == [(str(tmp_path / "a.txt"), tmp_path / "a.txt")]


def test_a_folder_with_nothing_in_it_does_not_stop_the_rest(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("text")
    first, second = find(tmp_path / "empty", tmp_path / "a.txt")
    assert "no files with .txt in this folder" in first[1]
    assert second[1] == tmp_path / "a.txt"


def lines(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """UTF-8 whatever the locale; only line ends divide; an empty line is an empty text."""
    lines(monkeypatch, "\ufeffgrün\r\n\na\u2028b\x0bc".encode())
    assert find("-") == [("stdin:1", "grün"), ("stdin:2", ""), ("stdin:3", "a\u2028b\x0bc")]
    lines(monkeypatch, b"some/a.png\n\nb.png\n")
    assert [content for _, content in find("-", kind="image")] == [
        Path("some/a.png"),
        Path("b.png"),
    ]
    lines(monkeypatch, b"")
    assert find("-") == [("-", "stdin: nothing in it")]
    assert "lines of standard input have no columns" in find("-", columns=("a",))[0][1]


def test_a_stray_byte_spoils_only_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines(monkeypatch, b"good\nb\xffd\ngood\n")
    contents = [content for _, content in find("-")]
    assert text_of(contents[0]) == text_of(contents[2]) == "good"
    with pytest.raises(ValueError, match=r"not UTF-8 \(byte 0xff\)"):
        text_of(contents[1])


CSV = 'title,text\nA,"one, ""two""\nthree"\n\nB,four\nC\nD,five\n'


@pytest.mark.parametrize("compressed", [False, True])
def test_csv(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / ("t.csv.gz" if compressed else "t.csv")
    content = b"\xef\xbb\xbf" + CSV.encode()
    path.write_bytes(gzip.compress(content) if compressed else content)
    found = find(path, columns=("text", "title"))
    assert [name.rpartition(":")[2] for name, _ in found] == ["2", "5", "6", "7"]
    contents = [content for _, content in found]
    assert contents[:2] == ['one, "two"\nthree A', "four B"]
    assert contents[2:] == ["1 columns, the first row has 2", "five D"]


def test_the_texts_are_those_of_training(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CSV.replace("C\n", ""))
    rows = list(read_table(path, Columns(("text", "title"), "title"), ""))
    ours = find(path, columns=("text", "title"))
    assert [(f"{path}:{line}", text) for text, _, line in rows] == ours


def test_a_number_is_a_column_of_a_table_without_names(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text('a "quote\tone\nb\ttwo\n')
    assert find(path, columns=("0",)) == [(f"{path}:1", 'a "quote'), (f"{path}:2", "b")]
    assert find(path, columns=("2",)) == [(str(path), f"{path} has no column '2'; it has 0 to 1")]
    assert "has no column 'text'; it has" in find(path, columns=("text",))[0][1]


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"text": "one", "n": 3}\n\n{"text": null}\n[1]\n{"a": 1}\n{\n{"text": "two"}\n'
    )
    found = find(path, columns=("text",))
    assert [content for _, content in found] == [
        "one", "'text' holds null, expected a text", "expected a JSON object, got '[1]'",
        "no value for 'text'; there are a",
        "not JSON: Expecting property name enclosed in double quotes: line 2 column 1 (char 2)",
        "two",
    ]  # fmt: skip
    assert find(path, columns=("n",))[0] == (f"{path}:1", "3")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b'text\n"open\nnever closed\n', ":2: a quote that opens in this row is never"),
        ("t.csv", b"", ": nothing in it"),
        ("t.csv", b"text\n", ": nothing in it"),
        ("t.jsonl", b"", ": nothing in it"),
        ("t.csv.gz", b"no gzip", "Not a gzipped file"),
        ("t.parquet", b"PAR1", "--column needs a table (.csv, .tsv, .jsonl, .ndjson, also with"),
    ],
)
def test_damaged_tables(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    found = find(tmp_path / name, columns=("text",))
    assert message in found[-1][1]
    assert "\n" not in found[-1][1]


def test_wrong_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    assert "say by --column which column holds the text" in find(tmp_path / "t.csv")[0][1]
    assert "--column needs a table" in find(tmp_path, columns=("a",))[0][1]
    assert "no such file (addresses" in find("https://a.b/t.csv", columns=("a",))[0][1]
    (long,) = find("a" * 5000)
    with pytest.raises(FileNotFoundError, match="no such file"):
        text_of(long[1])


def test_a_long_table_does_not_fill_memory(tmp_path: Path) -> None:
    """A reader that collects would take more than the file; this one takes some buffers."""
    import tracemalloc

    path = tmp_path / "t.csv"
    path.write_text("text\n" + ("word " * 20 + "\n") * 100_000)
    tracemalloc.start()
    count = sum(1 for _ in find_samples((), [str(path)], ["text"], "text", ()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 100_000
    assert peak < 1_000_000 < path.stat().st_size / 5


def test_what_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfgood")
    assert text_of(tmp_path / "a.txt") == "good"
    for source, message in (
        ("a\0b", "a NUL byte"),
        (tmp_path, "a folder"),
        (tmp_path / "none.txt", "no such file"),
        ("x" * ((1 << 24) + 1), "more than 16,777,216 characters"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            text_of(source)
    with (tmp_path / "big.txt").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="more than 16,777,216 characters"):
        text_of(tmp_path / "big.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX")
def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="no such file"):
        text_of(tmp_path / "pipe")


def test_empty_and_long_texts_are_counted() -> None:
    definition = char_tokenizer(["<pad>", "<unk>", "a", "b"]).to_str()
    preprocessing = {"kind": "text", "tokenizer": "t", "max_length": 3, "vocab_size": 4}
    reader = make_reader(preprocessing, {"t": definition}.__getitem__)
    inputs = reader.collate(["", "ab", "abab", " "])
    assert inputs["lengths"].tolist() == [1, 2, 3, 1]
    assert reader.counts == {"empty": 2, "truncated": 1}
