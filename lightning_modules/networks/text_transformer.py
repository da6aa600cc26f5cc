"""Transformer encoder for text: pre-norm blocks, masked attention, masked mean pooling.

Vaswani et al., "Attention Is All You Need", 2017; norm before each sublayer as in Xiong et al.,
"On Layer Normalization in the Transformer Architecture", 2020.
Tokens int64 [N,L], padded with 0 at the end, and lengths int64 [N] -> logits float32 [N,K].

N batch, L tokens, D features, A attention heads, K classes.
"""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class Attention(nn.Module):
    """Self-attention that no padding takes part in."""

    def __init__(self, features: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(features, 3 * features)
        self.output = nn.Linear(features, features)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[N,L,D], bool [N,1,1,L] -> [N,L,D]."""
        batch, length, features = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)  # each [N,A,L,D/A]
        dropout = self.dropout if self.training else 0.0
        x = scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return self.output(x.transpose(1, 2).reshape(batch, length, features))


class Block(nn.Module):
    """Attention and a two-layer network, each behind a norm and added to its input."""

    def __init__(self, features: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(features)
        self.attention = Attention(features, num_heads, dropout)
        self.feedforward_norm = nn.LayerNorm(features)
        self.feedforward = nn.Sequential(
            nn.Linear(features, 4 * features), nn.GELU(), nn.Linear(4 * features, features)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[N,L,D], bool [N,1,1,L] -> [N,L,D]."""
        x = x + self.dropout(self.attention(self.attention_norm(x), mask))
        return x + self.dropout(self.feedforward(self.feedforward_norm(x)))


class TextTransformer(nn.Module):
    """Token and position embeddings, blocks, mean over the text, linear head.

    Args:
        vocab_size: Number of token ids; 0 is padding.
        num_classes: Number of classes K.
        max_length: Longest text in tokens.
        features: Features D of a token, a multiple of `num_heads`.
        num_heads: Attention heads A.
        num_layers: Blocks.
        dropout: Probability of dropping a feature or an attention weight.

    Raises:
        ValueError: The heads cannot share the features equally.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        max_length: int,
        features: Annotated[int, ">= 1"] = 128,
        num_heads: Annotated[int, ">= 1"] = 4,
        num_layers: Annotated[int, ">= 1"] = 2,
        dropout: Annotated[float, "0 <= x < 1"] = 0.1,
    ) -> None:
        super().__init__()
        if features % num_heads:
            raise ValueError(f"features {features} must be a multiple of num_heads {num_heads}")
        self.embedding = nn.Embedding(vocab_size, features, padding_idx=0)
        nn.init.normal_(self.embedding.weight[1:], std=0.1)
        self.position = nn.Parameter(0.02 * torch.randn(max_length, features))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(features, num_heads, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(features)
        self.head = nn.Linear(features, num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """int64 [N,L], int64 [N] -> logits float32 [N,K]."""
        length = tokens.shape[1]
        mask = torch.arange(length, device=tokens.device) < lengths[:, None]  # [N,L]
        x = self.dropout(self.embedding(tokens) + self.position[:length])  # [N,L,D]
        for block in self.blocks:
            x = block(x, mask[:, None, None])
        x = self.norm(x) * mask[:, :, None]
        return self.head(self.dropout(x.sum(dim=1) / lengths[:, None]))
