"""A text becomes token ids, identically in training and in the torch-free predictor.

A tokenizer is one `tokenizer.json` of the `tokenizers` library. Three forms are made here or by
training (`basic_english`, `char`, `bpe`); any other file works too. Id 0 is kept for padding: where
a file gives it to another token, all its ids move up by one. A text without tokens becomes one
`<unk>`, so that no length is 0; a text longer than `max_length` loses its end.

N batch, L tokens.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from preprocessing.text_basic_english import TOKEN_PATTERN, WordEncoder

PAD = "<pad>"
UNKNOWN = "<unk>"
PAD_NAMES = (PAD, "[PAD]", "<PAD>")
UNKNOWN_NAMES = (UNKNOWN, "[UNK]", "<UNK>")


class PackedTokens(NamedTuple):
    """Token ids of several texts in one array: text i is ids[offsets[i]:offsets[i + 1]]."""

    ids: np.ndarray  # int32 [tokens]
    offsets: np.ndarray  # int64 [texts + 1]
    num_empty: int  # texts that had no token
    num_truncated: int  # texts that were longer than the maximum


class TextTokenizer:
    """Token ids of texts by the rules of one tokenizer.json.

    Args:
        definition: Content of a tokenizer.json.

    Raises:
        ValueError: The content is no tokenizer.
    """

    def __init__(self, definition: str) -> None:
        try:
            self.tokenizer = Tokenizer.from_str(definition)
        except Exception as error:  # the library raises nothing more specific
            raise ValueError(f"not a tokenizer.json of the tokenizers library: {error}") from error
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.shift = 0 if self.tokenizer.id_to_token(0) in PAD_NAMES else 1
        unknown = [self.tokenizer.token_to_id(name) for name in UNKNOWN_NAMES]
        self.empty_id = next((i + self.shift for i in unknown if i is not None), 0)
        # all ids are below it, also where a file leaves some out
        self.vocab_size = max(self.tokenizer.get_vocab().values(), default=0) + 1 + self.shift
        self._words = self._word_encoder()

    def _word_encoder(self) -> WordEncoder | None:
        """The fast path, where the file's rules are those of basic_english."""
        rules = rule_json(self.tokenizer)
        if rules != rule_json(basic_english_tokenizer([PAD, UNKNOWN])):
            return None
        vocabulary = self.tokenizer.get_vocab()
        return WordEncoder(vocabulary, vocabulary[UNKNOWN])

    def tokens(self) -> dict[str, int]:
        """Id of each token."""
        vocabulary = self.tokenizer.get_vocab()
        return {token: i + self.shift for token, i in vocabulary.items()}

    def encode(self, texts: Sequence[str], max_length: int | None = None) -> PackedTokens:
        """Tokenizes texts in one call (faster than one by one)."""
        if self._words is not None:
            ids, offsets = self._words.encode(texts)
        else:
            clean = [text.encode("utf-8", "replace").decode() for text in texts]
            rows = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(clean)]
            offsets = np.cumsum([0, *map(len, rows)])
            ids = np.fromiter((i for row in rows for i in row), np.int32, offsets[-1])
        return finish(ids + np.int32(self.shift), offsets, self.empty_id, max_length)


def finish(
    ids: np.ndarray, offsets: np.ndarray, empty_id: int, max_length: int | None
) -> PackedTokens:
    """Fills texts without tokens and cuts those that are too long."""
    lengths = np.diff(offsets)
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        ids = np.insert(ids, offsets[empty], np.int32(empty_id))
        lengths = np.maximum(lengths, 1)
    long = 0
    if max_length is not None and (long := int((lengths > max_length).sum())):
        position = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        ids = ids[position < max_length]
        lengths = np.minimum(lengths, max_length)
    return PackedTokens(ids, np.concatenate([[0], np.cumsum(lengths)]), len(empty), long)


def padded_batch(
    ids: np.ndarray, offsets: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gathers texts as one batch, padded with 0 at the end.

    Returns:
        tokens int64 [N,L], lengths int64 [N].
    """
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    position = np.arange(lengths.max(initial=1))
    inside = position < lengths[:, None]  # [N,L]
    tokens = np.zeros(inside.shape, np.int64)
    tokens[inside] = ids[(starts[:, None] + position)[inside]]
    return tokens, lengths


def text_inputs(
    texts: Sequence[str],
    tokenizer: TextTokenizer,
    preprocessing: Mapping[str, Any],
    counts: Counter[str] | None = None,
) -> dict[str, np.ndarray]:
    """A model's inputs for a few texts.

    Args:
        texts: N texts.
        tokenizer: From the bundle or checkpoint.
        preprocessing: "max_length" and "vocab_size" of a datamodule.
        counts: Texts without a token and texts that were cut are added to it.

    Returns:
        "tokens" int64 [N,L] and "lengths" int64 [N].

    Raises:
        ValueError: The tokenizer is not the one the model was trained with.
    """
    if tokenizer.vocab_size != preprocessing["vocab_size"]:
        raise ValueError(
            f"tokenizer.json has {tokenizer.vocab_size} tokens, the model was trained with "
            f"{preprocessing['vocab_size']}: use the tokenizer.json that lies beside the model"
        )
    packed = tokenizer.encode(texts, preprocessing["max_length"])
    if counts is not None:
        counts.update(empty=packed.num_empty, truncated=packed.num_truncated)
    tokens, lengths = padded_batch(packed.ids, packed.offsets, np.arange(len(texts)))
    return {"tokens": tokens, "lengths": lengths}


def basic_english_tokenizer(vocabulary: Sequence[str]) -> Tokenizer:
    """Lower-case words and punctuation, as torchtext's basic_english."""
    tokenizer = word_level(vocabulary)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace('"', ""),
            normalizers.Replace("<br />", " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(TOKEN_PATTERN), "removed", invert=True)
    return tokenizer


def char_tokenizer(vocabulary: Sequence[str]) -> Tokenizer:
    """Lower-case characters without white space, for scripts that do not separate words."""
    tokenizer = word_level(vocabulary)
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\s\x1c-\x1f]"), "removed", invert=True)
    return tokenizer


def word_level(vocabulary: Sequence[str]) -> Tokenizer:
    """A tokenizer that looks whole tokens up; ids are places in the vocabulary."""
    ids = {token: i for i, token in enumerate(vocabulary)}
    return Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))


def rule_json(tokenizer: Tokenizer) -> tuple[str, ...]:
    """What decides how a text is cut, apart from the vocabulary."""
    if not isinstance(tokenizer.model, models.WordLevel) or tokenizer.post_processor is not None:
        return ()
    rules = tokenizer.normalizer, tokenizer.pre_tokenizer
    return tuple("" if rule is None else rule.__getstate__().decode() for rule in rules)
