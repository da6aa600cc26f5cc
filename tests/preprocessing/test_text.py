"""Tokenizers of every kind through one interface: ids, padding, empty and long texts."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from preprocessing.text import (
    TextTokenizer,
    basic_english_tokenizer,
    char_tokenizer,
    padded_batch,
    text_inputs,
)

WORDS = ["<pad>", "<unk>", "good", "bad", "film"]


def tokenizer() -> TextTokenizer:
    return TextTokenizer(basic_english_tokenizer(WORDS).to_str())


def test_a_batch_is_padded_with_0_at_the_end() -> None:
    inputs = text_inputs(
        ["Good film", "bad", "a good, good film"],
        tokenizer(),
        {"max_length": 4, "vocab_size": 5},
    )
    assert inputs["tokens"].dtype == inputs["lengths"].dtype == np.int64
    assert inputs["tokens"].tolist() == [[2, 4, 0, 0], [3, 0, 0, 0], [1, 2, 1, 2]]
    assert inputs["lengths"].tolist() == [2, 1, 4]


def test_a_text_without_tokens_becomes_one_unknown_token_and_is_counted() -> None:
    packed = tokenizer().encode(["", "good", " \n", "film"])
    assert packed.ids.tolist() == [1, 2, 1, 4]
    assert packed.offsets.tolist() == [0, 1, 2, 3, 4]
    assert packed.num_empty == 2


def test_ten_thousand_tokens_are_cut_and_counted() -> None:
    packed = tokenizer().encode(["good " * 10_000, "bad"], max_length=32)
    assert np.diff(packed.offsets).tolist() == [32, 1]
    assert packed.ids.tolist() == [2] * 32 + [3]
    assert packed.num_truncated == 1


def test_a_tokenizer_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="has 5 tokens, the model was trained with 7"):
        text_inputs(["good"], tokenizer(), {"max_length": 4, "vocab_size": 7})


def test_what_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(ValueError, match="not a tokenizer.json"):
        TextTokenizer('{"version": "1.0"}')


def test_characters_without_white_space_and_in_lower_case() -> None:
    chars = TextTokenizer(char_tokenizer(["<pad>", "<unk>", "好", "a"]).to_str())
    assert chars.encode(["好 A\n好x", "好"]).ids.tolist() == [2, 3, 2, 1, 2]


def test_ids_of_a_foreign_tokenizer_move_up_where_0_is_not_padding() -> None:
    model = models.WordLevel({"[UNK]": 0, "good": 1, "[CLS]": 2}, unk_token="[UNK]")
    foreign = Tokenizer(model)
    foreign.pre_tokenizer = pre_tokenizers.Whitespace()
    foreign.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", 2)]
    )
    foreign.enable_truncation(2)
    foreign.enable_padding(length=9)
    read = TextTokenizer(foreign.to_str())
    assert read.vocab_size == 4
    assert read.encode(["good bad good"]).ids.tolist() == [3, 2, 1, 2]
    assert read.tokens()["good"] == 2


def test_half_a_surrogate_pair_is_read_as_a_question_mark() -> None:
    for read in (tokenizer(), TextTokenizer(char_tokenizer(WORDS).to_str())):
        assert len(read.encode(["good \ud800"]).ids) in (2, 5)


def test_rows_of_a_batch_come_in_the_order_asked_for() -> None:
    ids, offsets = np.array([5, 6, 7, 8, 9], np.uint16), np.array([0, 2, 3, 5])
    tokens, lengths = padded_batch(ids, offsets, np.array([2, 1]))
    assert tokens.tolist() == [[8, 9], [7, 0]]
    assert lengths.tolist() == [2, 1]
