"""Word vector files in both text forms, into a network's embedding."""

from pathlib import Path

import pytest
import torch
from torch import nn

from datamodules.word_vectors import initialise_embedding, read_word_vectors

IDS = {"<pad>": 0, "<unk>": 1, "good": 2, "new york": 3}


class Network(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, size)


@pytest.mark.parametrize("first", [b"", b"3 2\n"])
def test_vectors_of_known_words_are_written(tmp_path: Path, first: bytes) -> None:
    path = tmp_path / "words.vec"
    path.write_bytes(first + b"good 1 2.5\nother 9 9\nnew york -1 1e-1\n")
    network = Network(2)
    before = network.embedding.weight.detach().clone()
    initialise_embedding(network, *read_word_vectors(path, IDS))
    expected = torch.cat([before[:2], torch.tensor([[1, 2.5], [-1, 0.1]])])
    assert torch.equal(network.embedding.weight, expected)
    with pytest.raises(ValueError, match="the vectors have 2 numbers, the network's embedding 3"):
        initialise_embedding(Network(3), *read_word_vectors(path, IDS))
    with pytest.raises(ValueError, match="Linear has no nn.Embedding named `embedding`"):
        initialise_embedding(nn.Linear(1, 1), *read_word_vectors(path, IDS))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good 1 2 3\nbad 1\n", r"words.vec:2: expected a word and 3 numbers"),
        (b"other 1 2 3\ngood 1 x 3\n", r"words.vec:2: could not convert"),
        (b"good 1 nan 3\n", r"words.vec:1: a number is not finite"),
        (b"other 1 2 3\n", r"no vector for any of the 4 tokens"),
        (b"", r"no vector for any of the 4 tokens"),
    ],
)
def test_damaged_files_are_located(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "words.vec").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_word_vectors(tmp_path / "words.vec", IDS)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--data.vectors .*nothing does not exist"):
        read_word_vectors(tmp_path / "nothing", IDS)
