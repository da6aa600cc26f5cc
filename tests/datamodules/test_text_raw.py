"""Rows of texts as packed arrays."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from datamodules.text_corpus import CorpusOptions, load_corpus
from datamodules.text_layout import find_sources
from datamodules.text_raw import ROWS_AT_ONCE, read_raw
from datamodules.text_readers import Columns


def test_texts_come_back_in_any_order_with_their_labels_and_places(tmp_path: Path) -> None:
    texts = [f"caf\u00e9 \U0001f40e {'x' * (i % 7)} {i}" for i in range(ROWS_AT_ONCE + 5)]
    lines = [f"{text}\t{'ab'[i % 2]}" for i, text in enumerate(texts)]
    path = tmp_path / "train.tsv"
    path.write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    raw = read_raw(find_sources(path, {})["train"], Columns(), tmp_path / "train.spool")
    rows = np.random.default_rng(0).permutation(len(raw))
    assert list(raw.texts(rows)) == [texts[row] for row in rows]
    assert list(raw.texts(rows[:0])) == []
    assert [raw.label_names[label] for label in raw.labels[:3]] == ["a", "b", "a"]
    assert raw.location(7) == f"{path}:9"
    assert len(np.unique(raw.hashes)) == len(texts)


def test_texts_that_differ_in_white_space_only_have_one_hash(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    given = ["a text", " a\\n text ", "a  text", "A text", "atext"]
    path.write_text("\n".join(f'{{"text": "{text}", "label": 1}}' for text in given))
    raw = read_raw(find_sources(path, {})["train"], Columns(), tmp_path / "train.spool")
    assert raw.hashes.dtype.itemsize == 16
    assert [int((raw.hashes == own).sum()) for own in raw.hashes] == [3, 3, 3, 1, 1]


@pytest.mark.slow
def test_texts_never_lie_in_memory_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    with path.open("w") as file:
        file.write("text\tlabel\n")
        file.writelines(f"{f'word{i % 9} ' * 17_000}{i}\t{i % 2}\n" for i in range(500))
    options = CorpusOptions(max_length=100, tokenizer="basic_english")
    tracemalloc.start()
    corpus = load_corpus(find_sources(path, {}), options, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(map(len, corpus.splits.values())) == 500
    assert peak < path.stat().st_size
