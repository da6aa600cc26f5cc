"""Mean of word and word-pair embeddings with a linear head: the fastText classifier.

Joulin et al., "Bag of Tricks for Efficient Text Classification", 2016. Pairs of neighbouring words
are hashed into a table of fixed size inside the graph, so every exported file takes plain tokens.
It can start as a naive Bayes classifier (Wang & Manning, "Baselines and Bigrams", 2012).
Tokens int64 [N,L], padded with 0 at the end, and lengths int64 [N] -> logits float32 [N,K].

N batch, L tokens, D features, K classes.
"""

from collections.abc import Iterable
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

# Knuth's multiplier and a prime: with ids below 2**31 no product leaves int64
HASH_FACTOR = 2_654_435_761
HASH_PRIME = (1 << 31) - 1
NAIVE_BAYES_SCALE = 10.0  # of the head, since a mean of log ratios is much smaller than their sum


class BagOfEmbeddings(nn.Module):
    """The order of words counts only within a pair.

    Args:
        vocab_size: Number of token ids; 0 is padding.
        num_classes: Number of classes K.
        embedding_dim: Features D of a word or pair.
        num_buckets: Rows of the table of word pairs; 0 leaves pairs out.
        dropout: Probability of dropping a whole word or pair, and a feature of the mean.
        naive_bayes: Starts the first K features from the classes' log-count ratios in train.

    Raises:
        ValueError: Fewer features than classes for naive Bayes.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        embedding_dim: Annotated[int, ">= 1"] = 32,
        num_buckets: Annotated[int, ">= 0"] = 100_000,
        dropout: Annotated[float, "0 <= x < 1"] = 0.5,
        naive_bayes: bool = False,
    ) -> None:
        super().__init__()
        if naive_bayes and embedding_dim < num_classes:
            raise ValueError(
                f"naive_bayes needs embedding_dim >= {num_classes} classes, got {embedding_dim}"
            )
        self.num_buckets = num_buckets
        self.naive_bayes = naive_bayes
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=0)
        nn.init.normal_(self.embedding.weight[1:], std=0.1)
        if num_buckets:
            self.pair_embedding = nn.Embedding(num_buckets, embedding_dim)
            nn.init.zeros_(self.pair_embedding.weight)  # an unseen pair says nothing
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(embedding_dim, num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """int64 [N,L], int64 [N] -> logits float32 [N,K]."""
        count = lengths[:, None]  # [N,1]
        is_word = inside(tokens, lengths).to(self.head.weight.dtype)  # [N,L]
        total = weighted_sum(self.embedding(tokens), self.dropout(is_word))  # [N,D]
        if self.num_buckets:
            is_pair = inside(tokens, lengths - 1).to(is_word.dtype)  # [N,L]
            pairs = self.pair_embedding(self.buckets(tokens))  # [N,L,D]
            total = total + weighted_sum(pairs, self.dropout(is_pair))
            count = 2 * count - 1
        return self.head(self.dropout(total / count))

    def buckets(self, tokens: Tensor) -> Tensor:
        """Row of the pair of each word and its follower; int64 [N,L] -> int64 [N,L]."""
        mixed = (tokens * HASH_FACTOR + pad(tokens, (0, 1))[:, 1:]) % HASH_PRIME
        # squared, since neighbouring sums would crowd in a few rows of a table of a round size
        return mixed * mixed % HASH_PRIME % self.num_buckets

    @torch.no_grad()
    def start_from_counts(self, batches: Iterable[tuple[dict[str, Tensor], Tensor]]) -> None:
        """Becomes a naive Bayes classifier of the training batches, where it is asked to."""
        if not self.naive_bayes:
            return
        num_classes = self.head.out_features
        words = torch.zeros(self.embedding.num_embeddings, num_classes, dtype=torch.int64)
        pairs = torch.zeros(self.num_buckets, num_classes, dtype=torch.int64)
        texts = torch.zeros(num_classes, dtype=torch.int64)
        for inputs, targets in batches:
            tokens, lengths = inputs["tokens"], inputs["lengths"]
            texts += targets.bincount(minlength=num_classes)
            add_counts(words, tokens, targets, inside(tokens, lengths))
            if self.num_buckets:
                add_counts(pairs, self.buckets(tokens), targets, inside(tokens, lengths - 1))
        self.embedding.weight[:, :num_classes] = log_ratios(words)
        if self.num_buckets:
            self.pair_embedding.weight[:, :num_classes] = log_ratios(pairs)
        nn.init.eye_(self.head.weight).mul_(NAIVE_BAYES_SCALE)
        self.head.bias.copy_((texts.clamp(min=1) / texts.sum()).log())


def inside(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Which positions of tokens [N,L] lie below each length; bool [N,L]."""
    return torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]


def weighted_sum(x: Tensor, weight: Tensor) -> Tensor:
    """[N,L,D], [N,L] -> [N,D]."""
    return torch.einsum("nld,nl->nd", x, weight)


def add_counts(counts: Tensor, ids: Tensor, targets: Tensor, mask: Tensor) -> None:
    """Adds one to counts [ids,K] for each masked id [N,L] of a text with its target [N]."""
    classes = targets[:, None].expand_as(ids)[mask]
    counts.index_put_((ids[mask], classes), torch.ones_like(classes), accumulate=True)


def log_ratios(counts: Tensor) -> Tensor:
    """Logarithms of P(id | class), each row centred; what never occurs says nothing. [ids,K]."""
    smoothed = counts + 1
    logarithm = (smoothed / smoothed.sum(dim=0)).log()
    return (logarithm - logarithm.mean(dim=1, keepdim=True)) * counts.any(dim=1, keepdim=True)
