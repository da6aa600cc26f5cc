"""TextCNN: convolutions of several widths over word embeddings, each reduced to its maximum.

Kim, "Convolutional Neural Networks for Sentence Classification", 2014.
Tokens int64 [N,L], padded with 0 at the end, and lengths int64 [N] -> logits float32 [N,K].

N batch, L tokens, D embedding features, F filters of one width, K classes.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor, nn


class TextCNN(nn.Module):
    """Every window that touches the text counts, so a text may be shorter than a kernel.

    Args:
        vocab_size: Number of token ids; 0 is padding.
        num_classes: Number of classes K.
        embedding_dim: Features D of a token.
        num_filters: Filters F of each width.
        kernel_sizes: Widths in tokens.
        dropout: Probability of dropping a pooled feature.
        embedding_dropout: Probability of dropping a feature of a token.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        embedding_dim: Annotated[int, ">= 1"] = 300,
        num_filters: Annotated[int, ">= 1"] = 100,
        kernel_sizes: Sequence[Annotated[int, ">= 1"]] = (3, 4, 5),
        dropout: Annotated[float, "0 <= x < 1"] = 0.5,
        embedding_dropout: Annotated[float, "0 <= x < 1"] = 0.0,
    ) -> None:
        super().__init__()
        if not kernel_sizes or min(kernel_sizes) < 1:
            raise ValueError(f"kernel_sizes must be positive widths, got {list(kernel_sizes)}")
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=0)
        nn.init.uniform_(self.embedding.weight[1:], -0.25, 0.25)  # as in the paper's code
        self.embedding_dropout = nn.Dropout(embedding_dropout)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(embedding_dim, num_filters, size, padding=size - 1) for size in kernel_sizes
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(num_filters * len(kernel_sizes), num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """int64 [N,L], int64 [N] -> logits float32 [N,K]."""
        x = self.embedding_dropout(self.embedding(tokens))  # [N,L,D]
        x = (x * inside(lengths, x.shape[1])[:, :, None]).transpose(1, 2)  # [N,D,L]
        pooled = []
        for convolution in self.convolutions:
            y = torch.relu(convolution(x))  # [N, F, L+size-1]
            windows = inside(lengths + y.shape[2] - x.shape[2], y.shape[2])  # [N, L+size-1]
            pooled.append((y * windows[:, None]).amax(dim=2))  # [N,F]; y >= 0: a zero never wins
        return self.head(self.dropout(torch.cat(pooled, dim=1)))


def inside(lengths: Tensor, size: int) -> Tensor:
    """Which of `size` positions lie inside each text; bool [N,size]."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]
