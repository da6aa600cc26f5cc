"""Bidirectional LSTM over word embeddings with masked mean and maximum pooling.

Tokens int64 [N,L], padded with 0 at the end, and lengths int64 [N] -> logits float32 [N,K].
The backward direction reads each text reversed by its own length, so that both directions meet the
padding only after the text, where it cannot act on the outputs that count. That takes the place of
packed sequences, which no exporter handles for every batch size.

N batch, L tokens, D features, H hidden features of one direction, K classes.
"""

from typing import Annotated

import torch
from torch import Tensor, nn


class BiLSTM(nn.Module):
    """One or more bidirectional layers.

    Args:
        vocab_size: Number of token ids; 0 is padding.
        num_classes: Number of classes K.
        embedding_dim: Features D of a token.
        hidden_features: Features H of one direction.
        num_layers: Bidirectional layers.
        dropout: Probability of dropping a feature between the stages.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        embedding_dim: Annotated[int, ">= 1"] = 128,
        hidden_features: Annotated[int, ">= 1"] = 128,
        num_layers: Annotated[int, ">= 1"] = 1,
        dropout: Annotated[float, "0 <= x < 1"] = 0.5,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=0)
        nn.init.normal_(self.embedding.weight[1:], std=0.1)
        sizes = [embedding_dim] + [2 * hidden_features] * (num_layers - 1)
        self.forward_layers = nn.ModuleList(lstm(size, hidden_features) for size in sizes)
        self.backward_layers = nn.ModuleList(lstm(size, hidden_features) for size in sizes)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(4 * hidden_features, num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """int64 [N,L], int64 [N] -> logits float32 [N,K]."""
        position = torch.arange(tokens.shape[1], device=tokens.device)  # [L]
        mask = position < lengths[:, None]  # [N,L]
        mirror = torch.where(mask, lengths[:, None] - 1 - position, position)  # [N,L]
        x = self.embedding(tokens)  # [N,L,D]
        for ahead, back in zip(self.forward_layers, self.backward_layers, strict=True):
            x = self.dropout(x)
            from_start, _ = ahead(x)  # [N,L,H]
            from_end, _ = back(reorder(x, mirror))  # [N,L,H]
            x = torch.cat([from_start, reorder(from_end, mirror)], dim=2)  # [N,L,2H]
        mean = (x * mask[:, :, None]).sum(dim=1) / lengths[:, None]  # [N,2H]
        # an LSTM's outputs lie above -1, so that is neutral for the maximum
        maximum = x.masked_fill(~mask[:, :, None], -1.0).amax(dim=1)  # [N,2H]
        return self.head(self.dropout(torch.cat([mean, maximum], dim=1)))


def lstm(in_features: int, hidden_features: int) -> nn.LSTM:
    """One direction of one layer."""
    return nn.LSTM(in_features, hidden_features, batch_first=True)


def reorder(x: Tensor, index: Tensor) -> Tensor:
    """Takes x [N,L,D] at the positions index [N,L]."""
    return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[2]))
