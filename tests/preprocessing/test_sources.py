"""What predict.py reads: order, names, tables by training's rules, faults kept in their place."""

import gzip
import io
import json
import os
import sys
from pathlib import Path

import pytest

from datamodules.text_columns import Columns
from datamodules.text_layout import one_source
from datamodules.text_readers import read_table
from preprocessing.reader import make_reader, text_of
from preprocessing.sources import find_samples
from preprocessing.table_flags import TableFlags
from preprocessing.tables import Declared
from preprocessing.text import char_tokenizer


def samples(*names: object, takes_text: bool = True, texts=(), said=None, **table: object) -> list:
    flags, said = TableFlags(**table), [] if said is None else said  # type: ignore[arg-type]
    places = [str(name) for name in names]
    return list(find_samples(texts, places, flags, takes_text, (".txt",), said.append))


def find(*names: object, **arguments: object) -> list:
    """(name, content) with the message in the place of a fault."""
    found = samples(*names, **arguments)  # type: ignore[arg-type]
    return [(name, str(c) if isinstance(c, ValueError) else c) for name, c, *_ in found]


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


def test_links_to_folders_are_followed_once_as_in_training(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "a.txt").write_text("text")
    (tmp_path / "asked").mkdir()
    for name in ("one", "two"):
        (tmp_path / "asked" / name).symlink_to(tmp_path / "elsewhere")
    expected = tmp_path / "asked" / "one" / "deep" / "a.txt"
    assert find(tmp_path / "asked") == [(str(expected), expected)]


@pytest.mark.parametrize("beside", [[], ["a.txt"]])
def test_a_folder_that_cannot_be_read_is_a_fault_of_its_own(
    tmp_path: Path, monkeypatch, beside: list[str]
) -> None:
    (tmp_path / "closed").mkdir()
    for name in beside:
        (tmp_path / name).write_text("text")
    scan = os.scandir

    def closed(folder):
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", closed)
    files = [(str(tmp_path / name), tmp_path / name) for name in beside]
    assert find(tmp_path) == [*files, (str(tmp_path / "closed"), "Permission denied")]


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
    assert [content for _, content in find("-", takes_text=False)] == [
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
    assert find(path, columns=("2",)) == [
        (str(path), f'{path}: no column 2; its columns are 0 (a "quote), 1 (one)')
    ]
    assert "no column 'text'; its columns are 0" in find(path, columns=("text",))[0][1]


def test_a_number_stays_a_place_where_a_cell_is_called_so(tmp_path: Path) -> None:
    """The first label of a table without names is 1: neither is it lost nor taken for the text."""
    path = tmp_path / "t.csv"
    path.write_text('1,"Fine","a film"\n0,"Bad","another"\n1,"Good","more"\n')
    said: list[str] = []
    found = find(path, columns=("1", "2"), said=said)
    assert [text for _, text in found] == ["Fine a film", "Bad another", "Good more"]
    assert said == [
        f"{path}: the first row is taken for data, not column names (--header true says otherwise)"
    ]
    said.clear()
    named = find(path, columns=("1",), declared=Declared(header=True), said=said)
    assert ([text for _, text in named], said) == (["Bad", "Good"], [])


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("v1,v2,,,\nham,one,,,\nspam,two,,,\n", ("1",)),
        ("\ufeffv2;v1\none;ham\ntwo;spam\n", ("v2",)),
        ("v2|v1\none|ham\ntwo|spam\n", ("0",)),
        ('{"v1": "ham", "v2": "one"}\n{"v1": "spam", "v2": "two"}\n', ("1",)),
    ],
)
def test_tables_are_read_by_the_rules_of_training(tmp_path: Path, content: str, columns) -> None:
    path = tmp_path / ("t.jsonl" if content.startswith("{") else "t.csv")
    path.write_text(content, encoding="utf-8")
    said: list[str] = []
    assert [text for _, text in find(path, columns=columns, said=said)] == ["one", "two"]
    source = one_source(path, ())
    label = "v1" if columns == ("v2",) else {"1": 0, "0": 1}[columns[0]]
    asked = Columns(columns, label)
    assert [text for text, *_ in source.rows(asked)] == ["one", "two"]
    chosen = source.chosen(asked)
    assert chosen
    assert said == [f"{path}: {text.replace('--data.', '--')}" for text in chosen.found]


def test_form_and_encoding_can_be_declared(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a~caf\xe9\n".encode("latin-1"))
    declared = Declared(separator="~", header=False)
    assert find(path, columns=("1",), declared=declared, encoding="latin-1")[0][1] == "caf\xe9"


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_cells_are_kept_for_the_answer(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t.{ending}"
    rows = [{"id": "a1", "text": "one", "more": "x"}, {"id": "a2", "text": "two", "more": "y"}]
    if ending == "csv":
        path.write_text("id,text,more\na1,one,x\na2,two,y\n")
    else:
        path.write_text("\n".join(map(json.dumps, [*rows, {"text": "three", "more": "z"}])))
    found = samples(path, columns=("text",), keep=("2", "id"))
    assert [sample.kept for sample in found[:2]] == [("x", "a1"), ("y", "a2")]
    if ending == "jsonl":
        assert str(found[2].content) == "no value for 'id'; there are text, more"
    (wrong, *_) = find(path, columns=("text",), keep=("idd",))
    assert "'idd'" in wrong[1]


def test_hidden_files_are_skipped_and_counted(tmp_path: Path) -> None:
    for name in ("a/1.txt", "a/._1.txt", ".cache/2.txt", "a/b/.x/3.txt", "__MACOSX/4.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    said: list[str] = []
    assert [content for _, content in find(tmp_path, said=said)] == [tmp_path / "a" / "1.txt"]
    assert said == [f"{tmp_path}: 4 hidden files or folders are skipped"]


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


@pytest.mark.slow
def test_a_long_table_does_not_fill_memory(tmp_path: Path) -> None:
    """A reader that collects would take more than the file; this one takes some buffers."""
    import tracemalloc

    path = tmp_path / "t.csv"
    path.write_text("text\n" + ("word " * 20 + "\n") * 100_000)
    tracemalloc.start()
    flags = TableFlags(["text"])
    count = sum(1 for _ in find_samples((), [str(path)], flags, "text", (), print))
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
