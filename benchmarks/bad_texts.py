"""Tables, JSON lines, Parquet and folders of text that are damaged, odd or hostile."""

import bz2
import gzip
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bad_case import Case, cut, damages, flip

NETWORK = ("--model", "bag_of_embeddings", "--fast_dev_run")
ROWS = [(f"some words about number {n} and {'ab'[n % 2]}", "ab"[n % 2]) for n in range(60)]
BODY = "".join(f"{text},{label}\n" for text, label in ROWS)
HEADED = "text,label\n" + BODY
LINES = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)


def parquet(columns: dict[str, object]) -> bytes:
    content = io.BytesIO()
    pq.write_table(pa.table(columns), content)
    return content.getvalue()


def odd_tables() -> Iterator[tuple[str, bytes | str]]:
    yield "open quote.csv", HEADED + '"never closed,a\n' + BODY
    yield "quote inside.csv", HEADED + 'a "quoted" word,a\n"a" b,b\n'
    yield "ragged.csv", HEADED + "a,b,c\nx\n,,,,\n"
    yield "nul.csv", HEADED + "a\0b,a\n"
    yield "only zeros.csv", bytes(2000)
    yield "header only.csv", "text,label\n"
    yield "empty.csv", ""
    yield "blank lines.csv", "\n\n\n\n"
    yield "one column.csv", "text\n" + "\n".join(text for text, _ in ROWS)
    yield "no names.csv", BODY
    yield "semicolons.csv", HEADED.replace(",", ";")
    yield "header twice.csv", "text,text,label,label\n" + "a b,c d,a,b\n" * 30
    yield "one class.csv", HEADED.replace(",b\n", ",a\n")
    yield "one row.csv", "text,label\nx y,a\n"
    yield "two rows.csv", "text,label\nx y,a\nz,b\n"
    yield "empty label.csv", HEADED + "words,\n"
    yield "all labels differ.csv", "text,label\n" + "".join(f"t {n},l{n}\n" for n in range(90))
    yield "all the same.csv", "text,label\n" + "same,a\nsame,b\n" * 40
    yield "white space.csv", "text,label\n" + "  \t ,a\n ,b\n" * 40
    yield "punctuation.csv", "text,label\n" + "\u200b,a\n\u00ad\u200d,b\n" * 40
    yield "formula.csv", HEADED + "\"=cmd|' /C touch ran'!A0\",a\n"
    yield "long line.csv", HEADED + "word " * 4_000_000 + ",a\n"
    yield "long word.csv", HEADED + "w" * 1_000_000 + ",a\n"
    yield "carriage returns.csv", HEADED.replace("\n", "\r")
    yield "mixed ends.csv", HEADED.replace("\n", "\r\n", 20)
    yield "latin-1.csv", HEADED.replace("words", "caf\xe9").encode("latin-1")
    yield "utf-16.csv", HEADED.encode("utf-16")
    yield "utf-16 without mark.csv", HEADED.encode("utf-16-le")
    yield "utf-32.csv", HEADED.encode("utf-32")
    yield "mark.csv", HEADED.encode("utf-8-sig")
    yield "noise.csv", np.random.default_rng(0).bytes(4000)
    yield "tabs in csv.tsv", HEADED
    yield "surrogates.jsonl", LINES + '{"text": "\\ud800 half", "label": "a"}\n'
    yield "deep.jsonl", LINES + "[" * 100_000 + "\n"
    yield "deep object.jsonl", LINES + '{"text":' * 100_000 + "\n"
    yield "scalars.jsonl", LINES + "5\n"
    yield "not a number.jsonl", LINES + '{"text": NaN, "label": "a"}\n'
    yield "large number.jsonl", LINES + '{"text": ' + "9" * 10_000 + ', "label": "a"}\n'
    yield "nested.jsonl", LINES + '{"text": {"a": [1]}, "label": ["a"]}\n'
    yield "missing.jsonl", LINES + '{"text": "x"}\n'
    yield "null.jsonl", LINES + '{"text": null, "label": "a"}\n'
    yield "same key.jsonl", LINES + '{"text": "x", "text": "y", "label": "a"}\n'
    yield "cut.jsonl", cut(LINES.encode(), 0.503)
    yield "one array.jsonl", json.dumps([{"text": t, "label": label} for t, label in ROWS])
    yield "empty.jsonl", ""
    texts, labels = [text for text, _ in ROWS], [label for _, label in ROWS]
    whole = parquet({"text": texts, "label": labels})
    for damage, content in damages(whole, flips=6).items():
        yield f"{damage}.parquet", content
    yield "empty.parquet", b""
    yield "no rows.parquet", parquet({"text": texts[:0], "label": labels[:0]})
    yield "nulls.parquet", parquet({"text": [*texts[1:], None], "label": labels})
    yield "lists.parquet", parquet({"text": [[text] for text in texts], "label": labels})
    yield "bytes.parquet", parquet({"text": [b"\xff" + t.encode() for t in texts], "label": labels})
    yield "numbers.parquet", parquet({"text": list(range(60)), "label": [n % 2 for n in range(60)]})
    yield "other columns.parquet", parquet({"one": texts, "two": labels})
    hostile = pa.schema([("text", pa.string()), ("label", pa.string())]).with_metadata(
        {"ARROW:schema": "gASV", "pandas": '{"index_columns": [{"kind": "range"}]'}
    )
    stream = io.BytesIO()
    pq.write_table(pa.table([texts, labels], schema=hostile), stream)
    yield "odd metadata.parquet", stream.getvalue()
    yield "csv named.parquet", HEADED
    for suffix, pack in (("gz", gzip.compress), ("bz2", bz2.compress)):
        packed = pack(HEADED.encode())
        yield f"cut.csv.{suffix}", cut(packed, 0.6)
        yield f"flipped.csv.{suffix}", flip(packed, 3, 3)
        yield f"not packed.csv.{suffix}", HEADED
        yield f"empty.csv.{suffix}", b""
    yield "not packed.csv.zst", HEADED
    yield "unknown.xyz", HEADED
    yield "labelled.txt", "DESC:manner How did it go\nno label here\n"


def unknown_in_val(folder: Path) -> None:
    (folder / "t").mkdir()
    (folder / "t" / "train.csv").write_text(HEADED)
    (folder / "t" / "val.csv").write_text(HEADED + "new,c\n")


def no_train(folder: Path) -> None:
    (folder / "t").mkdir()
    (folder / "t" / "val.csv").write_text(HEADED)


def class_folder(change: Callable[[Path], object]) -> Callable[[Path], object]:
    """`t/<class>/*.txt`, changed."""

    def prepare(folder: Path) -> None:
        for number, (text, label) in enumerate(ROWS):
            path = folder / "t" / label / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        change(folder / "t")

    return prepare


def text_folders() -> Iterator[tuple[str, Callable[[Path], object]]]:
    yield "no folder", lambda folder: None
    yield "empty folder", lambda folder: (folder / "t").mkdir()
    yield "a label only val has", unknown_in_val
    yield "val without train", no_train
    for title, change in {
        "an empty class": lambda t: (t / "c").mkdir(),
        "an empty text": lambda t: (t / "a" / "x.txt").write_text(""),
        "binary text": lambda t: (t / "a" / "x.txt").write_bytes(bytes(range(256)) * 4),
        "a loop": lambda t: (t / "a" / "loop").symlink_to(t),
        "a link to nothing": lambda t: (t / "a" / "x.txt").symlink_to("gone"),
        "a link to a device": lambda t: (t / "a" / "x.txt").symlink_to("/dev/zero"),
        "a pipe": lambda t: os.mkfifo(t / "a" / "x.txt"),
        "a folder named as a text": lambda t: (t / "a" / "x.txt").mkdir(),
        "two candidates": lambda t: [
            (t / n).write_text(HEADED) for n in ("train.csv", "train.tsv")
        ],
        "a class name without UTF-8": lambda t: (t / "a").rename(t / os.fsdecode(b"caf\xe9")),
        "a large text": lambda t: (t / "a" / "x.txt").write_text("word " * 6_000_000),
    }.items():
        yield title, class_folder(change)


def settings() -> Iterator[tuple[str, tuple[str, ...], bytes]]:
    """Flags with a good table; an extra file lies at `extra`."""
    for name, values in {
        "text_columns": ("[text]", "[none]", "[5]", "[-1]", "text", "[]", "[text,label]"),
        "label_column": ("none", "7", "-1", "true", "text"), "encoding": ("hex", "undefined", "",
        "utf-16", "rot13", "ascii", "cp037"), "header": ("false", "perhaps"), "quoted": ("false",),
        "max_length": ("0", "1", "-5", "1e9"), "max_size": ("0", "1"), "min_frequency": ("0", "99"),
        "batch_tokens": ("0", "1", "5"), "tokenizer": ("none", "bpe", "char", "/dev/null", "extra"),
        "vocab": ("none", "/dev/null", "extra"), "vectors": ("none", "/dev/null", "extra"),
        "train_file": ("none", "../x", "/etc/passwd"), "val_fraction": ("0.01", "0.99", "nan", "x"),
        "batch_size": ("1", "0"), "encoding_errors": ("ignore",),
    }.items():  # fmt: skip
        for value in values:
            yield f"--data.{name} {value}", (f"--data.{name}={value}",), b"a 1 2\nb 1\n\xff\n"
    for title, content in {
        "not JSON": b"{", "a list": b"[]", "deep": b"[" * 100_000, "an empty object": b"{}",
        "no model": b'{"version": "1.0", "added_tokens": []}',
    }.items():  # fmt: skip
        yield f"tokenizer.json: {title}", ("--data.tokenizer=extra",), content
    for title, content in {
        "ragged": b"some 1 2 3\nwords 1 2\n", "words": b"some a b c\n",
        "not finite": b"some nan inf 1\n",
        "a header that lies": b"900 300\nsome 1 2 3\n", "huge numbers": b"some 1e999 1 2\n",
    }.items():  # fmt: skip
        yield f"vectors: {title}", ("--data.vectors=extra",), content
    for title, content in {
        "twice": b"<unk>\nthe\nthe\n", "no unknown": b"the\na\n", "binary": bytes(range(256)),
    }.items():  # fmt: skip
        yield f"vocabulary: {title}", ("--data.vocab=extra",), content


def text_cases() -> Iterator[Case]:
    for name, content in odd_tables():

        def prepare(folder: Path, name: str = name, content: bytes | str = content) -> None:
            data = content if isinstance(content, bytes) else content.encode()
            (folder / name).write_bytes(data)

        arguments = ("--data", "text_files", "--data.root", name, *NETWORK)
        yield Case("tables", name, "train", arguments, prepare)
    for name, prepare_folder in text_folders():
        arguments = ("--data", "text_files", "--data.root", "t", *NETWORK)
        yield Case("texts", name, "train", arguments, prepare_folder)
    for name, extra, content in settings():

        def prepare_extra(folder: Path, content: bytes = content) -> None:
            (folder / "t.csv").write_text(HEADED)
            (folder / "extra").write_bytes(content)

        given = ("--data", "text_files", "--data.root", "t.csv", *NETWORK, *extra)
        yield Case("texts", name, "train", given, prepare_extra)
