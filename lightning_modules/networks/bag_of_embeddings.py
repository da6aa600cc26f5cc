"""Mean of word and word-pair embeddings with a linear head: the fastText classifier.

Joulin et al., "Bag of Tricks for Efficient Text Classification", 2016. Pairs of neighbouring words
are hashed into a table of fixed size inside the graph, so every exported file takes plain tokens.
Tokens int64 [N,L], padded with 0 at the end, and lengths int64 [N] -> logits float32 [N,K].

N batch, L tokens, D features, K classes.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

HASH_FACTOR = 1_000_003  # prime; with ids below 2**40 the products stay within int64


class BagOfEmbeddings(nn.Module):
    """The order of words counts only within a pair.

    Args:
        vocab_size: Number of token ids; 0 is padding.
        num_classes: Number of classes K.
        embedding_dim: Features D of a word or pair.
        num_buckets: Rows of the table of word pairs; 0 leaves pairs out.
        dropout: Probability of dropping a whole word or pair, and a feature of the mean.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        embedding_dim: int = 32,
        num_buckets: int = 100_000,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.num_buckets = num_buckets
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=0)
        nn.init.normal_(self.embedding.weight[1:], std=0.1)
        if num_buckets:
            self.pair_embedding = nn.Embedding(num_buckets, embedding_dim)
            nn.init.zeros_(self.pair_embedding.weight)  # an unseen pair says nothing
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(embedding_dim, num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """int64 [N,L], int64 [N] -> logits float32 [N,K]."""
        position = torch.arange(tokens.shape[1], device=tokens.device)  # [L]
        is_word = (position < lengths[:, None]).to(self.head.weight.dtype)  # [N,L]
        count = lengths[:, None]  # [N,1]
        total = weighted_sum(self.embedding(tokens), self.dropout(is_word))  # [N,D]
        if self.num_buckets:
            is_pair = (position + 1 < lengths[:, None]).to(is_word.dtype)  # [N,L]
            follower = pad(tokens, (0, 1))[:, 1:]  # [N,L]
            bucket = (tokens * HASH_FACTOR + follower) % self.num_buckets  # [N,L]
            total = total + weighted_sum(self.pair_embedding(bucket), self.dropout(is_pair))
            count = 2 * count - 1
        return self.head(self.dropout(total / count))


def weighted_sum(x: Tensor, weight: Tensor) -> Tensor:
    """[N,L,D], [N,L] -> [N,D]."""
    return torch.einsum("nld,nl->nd", x, weight)
