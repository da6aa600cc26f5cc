"""basic_english against torchtext's definition, its own reference file and its vocabulary."""

import csv
import gzip
import os
import random
import re
from pathlib import Path

import pytest

from preprocessing.text import TextTokenizer, basic_english_tokenizer
from preprocessing.text_basic_english import WordEncoder, basic_english_tokens

DATA = os.environ.get("PROJECT_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="PROJECT_DATA names no folder with the data")

# torchtext 0.18, data/utils.py: replaced in this order, then split at white space
RULES = [
    (r"'", " '  "),
    (r'"', ""),
    (r"\.", " . "),
    (r"<br \/>", " "),
    (r",", " , "),
    (r"\(", " ( "),
    (r"\)", " ) "),
    (r"!", " ! "),
    (r"\?", " ? "),
    (r";", " "),
    (r":", " "),
    (r"\s+", " "),
]
PIECES = [
    *"abA'\".,()!?;: \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u2003\u3000\u200b<>/\0\x7fÉßΣİ中",
    *("<br />", "<br/>", "<BR />", "Σ ", "ΑΣ", "aaaaaaaa", "a" * 16, "a" * 17, "é" * 9),
]


def defined(text: str) -> list[str]:
    text = text.lower()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return text.split()


def random_texts(count: int) -> list[str]:
    draw = random.Random(0)
    return ["".join(draw.choices(PIECES, k=draw.randrange(30))) for _ in range(count)]


def test_tokens_are_those_of_the_definition() -> None:
    for text in random_texts(3000):
        assert basic_english_tokens(text) == defined(text), repr(text)


def test_ids_are_those_of_the_definition_and_of_the_tokenizers_library() -> None:
    texts = random_texts(3000)
    known = sorted({token for text in texts for token in defined(text)})[::2]
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<unk>", *known])}
    ids, offsets = WordEncoder(vocabulary, 1).encode(texts)
    library = basic_english_tokenizer(list(vocabulary))
    for i, text in enumerate(texts):
        expected = [vocabulary.get(token, 1) for token in defined(text)]
        assert ids[offsets[i] : offsets[i + 1]].tolist() == expected, repr(text)
        # the library has no final sigma, so it gets the text in lower case
        assert library.encode(text.lower()).ids == expected, repr(text)


def test_words_that_share_a_place_in_the_hash_tables_keep_their_ids() -> None:
    words = [f"w{i}" for i in range(60_000)]
    vocabulary = {word: i for i, word in enumerate(["<unk>", *words])}
    encoder = WordEncoder(vocabulary, 0)
    assert len(encoder.tables) > 2
    ids, _ = encoder.encode([" ".join(words), "w60001 w-1"])
    assert ids.tolist() == [*range(1, 60_001), 0, 0]


@pytest.mark.parametrize("texts", [[], [""], ["", "a", ""], ["a\x1eb"], ["\0", "a\0", "a"]])
def test_borders_between_texts(texts: list[str]) -> None:
    ids, offsets = WordEncoder({"<unk>": 0, "a": 1, "b": 2}, 0).encode(texts)
    lengths = [len(defined(text)) for text in texts]
    assert (offsets[1:] - offsets[:-1]).tolist() == lengths
    assert ids.tolist() == [{"a": 1, "b": 2}.get(t, 0) for text in texts for t in defined(text)]


@needs_data
def test_all_rows_of_ag_news_equal_torchtexts_reference() -> None:
    folder = Path(str(DATA)) / "ag_news"
    with (folder / "test.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    lines = (folder / "basic_english.ref").read_text(encoding="utf-8").splitlines()
    assert len(rows) == len(lines) == 7600
    for (_, title, description), line in zip(rows, lines, strict=True):
        assert basic_english_tokens(f"{title} , {description}") == line.split(" ")[2:]


@pytest.mark.slow
@needs_data
def test_vocabulary_and_ids_of_imdb_equal_torchtexts() -> None:
    import pyarrow.parquet as pq

    from datamodules.text_vocabulary import make_tokenizer, read_vocabulary

    folder = Path(str(DATA))
    reference = read_vocabulary(folder / "torchtext" / "imdb.vocab.txt.gz")
    assert len(reference) == 25_002
    train = pq.read_table(folder / "imdb" / "imdb_train.parquet")["text"].to_pylist()
    tokenizer = TextTokenizer(make_tokenizer("basic_english", train))
    assert tokenizer.tokens() == {token: i for i, token in enumerate(reference)}
    test = pq.read_table(folder / "imdb" / "imdb_test.parquet")["text"].to_pylist()[:1000]
    packed = tokenizer.encode(test)
    with gzip.open(folder / "torchtext" / "imdb_test_first1000.ids.txt.gz", "rt") as lines:
        expected = [[int(i) for i in line.split()] for line in lines]
    offsets = packed.offsets.tolist()
    found = [packed.ids[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    assert found == expected
