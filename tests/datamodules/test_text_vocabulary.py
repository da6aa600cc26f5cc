"""Vocabularies: torchtext's order, limits, given files, and the choice by script."""

import gzip
from pathlib import Path

import pytest

from datamodules.text_vocabulary import make_tokenizer, read_vocabulary
from preprocessing.text import TextTokenizer

TEXTS = ["b a a", "C c b", "d <pad>"]


def tokens(definition: str) -> list[str]:
    ids = TextTokenizer(definition).tokens()
    return sorted(ids, key=lambda token: ids[token])


def test_the_more_frequent_come_first_then_by_text() -> None:
    assert tokens(make_tokenizer("basic_english", TEXTS)) == ["<pad>", "<unk>", *"abcd"]


@pytest.mark.parametrize(
    ("limits", "expected"), [({"max_size": 2}, "ab"), ({"min_frequency": 2}, "abc")]
)
def test_limits_do_not_count_the_special_tokens(limits: dict[str, int], expected: str) -> None:
    definition = make_tokenizer("basic_english", TEXTS, **limits)
    assert tokens(definition) == ["<pad>", "<unk>", *expected]


def test_nothing_frequent_enough_is_an_error() -> None:
    with pytest.raises(ValueError, match="no token of the training texts occurs 9 times"):
        make_tokenizer("basic_english", TEXTS, min_frequency=9)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["这部电影很好", "电影不好看"], "好"),
        (["映画はよかった", "です"], "よ"),
        (["หนังดีมาก"], "ห"),
        (["ein guter Film", "電影"], "guter"),
    ],
)
def test_auto_looks_at_the_script(texts: list[str], expected: str) -> None:
    assert expected in tokens(make_tokenizer("auto", texts))


def test_auto_reads_all_texts() -> None:
    texts = ["word"] * 1500 + ["last"]
    assert tokens(make_tokenizer("auto", iter(texts))) == ["<pad>", "<unk>", "word", "last"]


def test_bpe_knows_every_text_and_is_reproducible() -> None:
    texts = [f"lower lowest newer newest wider {i}" for i in range(50)]
    definition = make_tokenizer("bpe", texts, max_size=300)
    assert make_tokenizer("bpe", texts, max_size=300) == definition
    tokenizer = TextTokenizer(definition)
    assert 260 < tokenizer.vocab_size <= 302
    packed = tokenizer.encode(["Lowest é 好 \U0001f600"])
    assert 0 not in packed.ids.tolist()
    assert 1 not in packed.ids.tolist()
    with pytest.raises(ValueError, match="bpe learns its own"):
        make_tokenizer("bpe", texts, vocab=Path("words.txt"))


@pytest.mark.parametrize("compressed", [False, True])
def test_a_vocabulary_saved_from_torchtext_keeps_its_ids(tmp_path: Path, compressed: bool) -> None:
    content = b"<pad>\n<unk>\nd\na\n"
    path = tmp_path / ("vocab.txt.gz" if compressed else "vocab.txt")
    path.write_bytes(gzip.compress(content) if compressed else content)
    tokenizer = TextTokenizer(make_tokenizer("basic_english", TEXTS, vocab=path))
    assert tokenizer.encode(["a b d"]).ids.tolist() == [3, 1, 2]


def test_ids_move_up_where_a_vocabulary_has_no_padding_first(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("<unk>\na\n")
    definition = make_tokenizer("basic_english", TEXTS, vocab=tmp_path / "vocab.txt")
    assert TextTokenizer(definition).encode(["a b"]).ids.tolist() == [2, 1]
    assert TextTokenizer(definition).vocab_size == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<unk>\na\nb\na\n", r"vocab.txt:4: 'a' stands in line 2 already"),
        (b"a\nb\n", r"vocab.txt: no <unk>"),
        (b"<unk>\n\xff\n", r"vocab.txt: a vocabulary must be UTF-8"),
    ],
)
def test_a_damaged_vocabulary(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_vocabulary(tmp_path / "vocab.txt")
    with pytest.raises(ValueError, match="does not exist"):
        read_vocabulary(tmp_path / "nothing")
    (tmp_path / "vocab.gz").write_bytes(gzip.compress(bytes(range(99)) * 9)[:-9])
    with pytest.raises(ValueError, match=r"vocab.gz: a vocabulary must be UTF-8: Compressed file"):
        read_vocabulary(tmp_path / "vocab.gz")


def test_a_given_tokenizer_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(make_tokenizer("char", ["abc"]))
    assert make_tokenizer(str(path), []) == path.read_text()
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer.json: not a tokenizer.json"):
        make_tokenizer(str(path), [])
    path.write_bytes(b"\xff{}")
    with pytest.raises(ValueError, match=r"tokenizer.json: 'utf-8' codec can't decode"):
        make_tokenizer(str(path), [])
    with pytest.raises(ValueError, match="none of auto, basic_english, char, bpe and no file: wrd"):
        make_tokenizer("wrd", [])
