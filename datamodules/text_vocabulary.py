"""Makes the tokenizer of a data set from its training texts, or from a file that the user has."""

import gzip
import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from preprocessing.text import (
    PAD,
    UNKNOWN,
    TextTokenizer,
    basic_english_tokenizer,
    char_tokenizer,
)
from preprocessing.text_basic_english import basic_english_tokens

KINDS = ("auto", "basic_english", "char", "bpe")
NUM_TEXTS_LOOKED_AT = 1000
# blocks whose scripts do not separate words: Thai, Lao, Myanmar, Khmer; kana; Han
SPACELESS = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF)),
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),
)
SPACELESS_SHARE = 0.3


def make_tokenizer(
    kind: str,
    texts: Iterable[str],
    max_size: int = 25_000,
    min_frequency: int = 1,
    vocab: Path | None = None,
) -> str:
    """The content of a tokenizer.json.

    Args:
        kind: "basic_english", "char", "bpe", "auto" (one of the first two, by the script), or the
            path of a tokenizer.json, which is taken as it is.
        texts: The training texts; read once.
        max_size: Largest number of tokens, `<pad>` and `<unk>` not counted.
        min_frequency: How often a token must occur to get an id.
        vocab: A file with one token a line in the order of ids, instead of counting.

    Raises:
        ValueError: An unknown kind, or a file that holds no tokenizer or vocabulary.
    """
    if kind not in KINDS:
        return read_definition(Path(kind))
    texts = iter(texts)
    if kind == "auto":
        first = list(islice(texts, NUM_TEXTS_LOOKED_AT))
        kind = "char" if spaceless_share(first) > SPACELESS_SHARE else "basic_english"
        texts = (text for part in (first, texts) for text in part)
    if kind == "bpe":
        if vocab is not None:
            raise ValueError("--data.vocab lists whole tokens; bpe learns its own, so drop one")
        return train_bpe(texts, max_size, min_frequency)
    if vocab is not None:
        tokens = read_vocabulary(vocab)
    else:
        tokens = count_tokens(kind, texts, max_size, min_frequency)
    build = char_tokenizer if kind == "char" else basic_english_tokenizer
    return build(tokens).to_str()


def read_definition(path: Path) -> str:
    """A tokenizer.json that exists already."""
    if not path.is_file():
        raise ValueError(f"--data.tokenizer is none of {', '.join(KINDS)} and no file: {path}")
    try:
        definition = path.read_text(encoding="utf-8")
        TextTokenizer(definition)
    except ValueError as error:  # not UTF-8 is one too
        raise ValueError(f"{path}: {error}") from error
    return definition


def count_tokens(kind: str, texts: Iterator[str], max_size: int, min_frequency: int) -> list[str]:
    """Tokens in torchtext's order: the more frequent first, then by text."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(
            "".join(text.lower().split()) if kind == "char" else basic_english_tokens(text)
        )
    for special in (PAD, UNKNOWN):
        counts.pop(special, None)
    # of millions of different tokens, a list of all in order would take more than the counts
    ranked = heapq.nsmallest(max_size, counts.items(), key=lambda item: (-item[1], item[0]))
    kept = [token for token, count in ranked if count >= min_frequency]
    if not kept:
        raise ValueError(
            f"no token of the training texts occurs {min_frequency} times: they are empty, or "
            "--data.min_frequency is too high"
        )
    return [PAD, UNKNOWN, *kept]


def read_vocabulary(path: Path) -> list[str]:
    """One token a line, as torchtext's `get_itos()` lists them; may be compressed (.gz).

    Raises:
        ValueError: A token comes twice, or `<unk>` is missing.
    """
    if not path.is_file():
        raise ValueError(f"--data.vocab {path} does not exist")
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        tokens = content.decode("utf-8").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: a vocabulary must be UTF-8: {error}") from error
    lines: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if token in lines:
            raise ValueError(f"{path}:{number}: {token!r} stands in line {lines[token]} already")
        lines[token] = number
    if UNKNOWN not in lines:
        raise ValueError(f"{path}: no {UNKNOWN}; words that are not listed need it")
    return tokens


def train_bpe(texts: Iterator[str], max_size: int, min_frequency: int) -> str:
    """Byte pair encoding of lower-case text; on bytes, so that nothing is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=max(max_size + 2, 258),  # never fewer than the bytes
        min_frequency=min_frequency,
        special_tokens=[PAD, UNKNOWN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str()


def spaceless_share(texts: Sequence[str]) -> float:
    """Share of letters that belong to scripts without spaces between words."""
    letters = [ord(c) for text in texts for c in text[:1000] if c.isalpha()]
    found = sum(any(low <= c <= high for low, high in SPACELESS) for c in letters if c > 0xDFF)
    return found / max(len(letters), 1)
