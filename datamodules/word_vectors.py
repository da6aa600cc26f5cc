"""Pretrained word vectors in text form: a word and its numbers a line (GloVe, fastText .vec)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from datamodules.text_decoding import open_bytes


def read_word_vectors(path: Path, ids: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the tokens in a vocabulary.

    Args:
        path: The file; may be compressed. fastText's first line (count and size) is skipped.
        ids: Id of each token.

    Returns:
        float32 [tokens found, D] and their ids, int64 [tokens found].

    Raises:
        ValueError: A line has no vector or one of another size, or no word is in the vocabulary.
    """
    if not path.is_file():
        raise ValueError(f"--data.vectors {path} does not exist")
    rows: dict[int, np.ndarray] = {}
    size = 0
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, start=1):
            cells = line.rstrip().split(b" ")
            if number == 1 and len(cells) == 2:
                continue
            size = size or len(cells) - 1
            # GloVe has a few words with spaces inside, so the numbers count from the end
            token = ids.get(b" ".join(cells[:-size]).decode("utf-8", "replace")) if size else None
            if len(cells) <= size or not size:
                raise ValueError(f"{path}:{number}: expected a word and {size or 'its'} numbers")
            if token is not None:
                try:
                    rows[token] = np.array(cells[-size:], np.float32)
                    if not np.isfinite(rows[token]).all():
                        raise ValueError("a number is not finite")
                except ValueError as error:
                    raise ValueError(f"{path}:{number}: {error}") from error
    if not rows:
        raise ValueError(f"{path} has no vector for any of the {len(ids)} tokens in the vocabulary")
    return np.stack(list(rows.values())), np.array(list(rows))


def initialise_embedding(network: nn.Module, vectors: np.ndarray, ids: np.ndarray) -> None:
    """Writes vectors float32 [M,D] into the rows `ids` of `network.embedding`.

    Raises:
        ValueError: The network has no embedding of that name, or its size differs.
    """
    embedding = dict(network.named_children()).get("embedding")
    if not isinstance(embedding, nn.Embedding):
        raise ValueError(
            f"--data.vectors: {type(network).__name__} has no nn.Embedding named `embedding`"
        )
    if embedding.embedding_dim != vectors.shape[1]:
        raise ValueError(
            f"--data.vectors: the vectors have {vectors.shape[1]} numbers, the network's embedding "
            f"{embedding.embedding_dim}; make them equal (--model.embedding_dim or .features)"
        )
    with torch.no_grad():
        embedding.weight[torch.from_numpy(ids)] = torch.from_numpy(vectors)
    print(f"word vectors: {len(ids):,} of {embedding.num_embeddings:,} tokens")
