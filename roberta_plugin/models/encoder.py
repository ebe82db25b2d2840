"""The Transformer encoder: embeddings and a stack of layers, normalized after each sublayer as BERT is.

Attribute names are fairseq's, so that state dicts agree.

Shapes: B blocks, T positions, D model dimension.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .attention import SelfAttention
from .dropout import Dropout
from .embeddings import LearnedPositions


class Layer(nn.Module):
    """Self-attention and feed-forward, each followed by dropout, the residual and a layer norm."""

    def __init__(
        self,
        dim: int,
        *,
        ffn_dim: int,
        num_heads: int,
        activation: Callable[[Tensor], Tensor],
        dropout_prob: float,
        attention_dropout_prob: float,
        activation_dropout_prob: float,
        attention_backend: str,
    ) -> None:
        super().__init__()
        self.self_attn = SelfAttention(
            dim, num_heads=num_heads, dropout_prob=attention_dropout_prob, backend=attention_backend
        )
        self.self_attn_layer_norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, dim)
        self.final_layer_norm = nn.LayerNorm(dim)
        self.activation = activation
        self.dropout = Dropout(dropout_prob)
        self.activation_dropout = Dropout(activation_dropout_prob)

    def forward(self, x: Tensor, is_padding: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.self_attn_layer_norm(x + self.dropout(self.self_attn(x, is_padding=is_padding)))
        inner = self.activation_dropout(self.activation(self.fc1(x)))
        x = self.final_layer_norm(x + self.dropout(self.fc2(inner)))
        return x


class SentenceEncoder(nn.Module):
    """Ids -> features."""

    version: Tensor

    def __init__(
        self,
        vocab_size: int,
        *,
        dim: int,
        pad_id: int,
        max_positions: int,
        layers: list[Layer],
        dropout_prob: float,
        checkpoint_activations: bool = False,
    ) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.checkpoint_activations = checkpoint_activations
        self.embed_tokens = nn.Embedding(vocab_size, dim, padding_idx=pad_id)
        self.embed_positions = LearnedPositions(max_positions, dim, pad_id=pad_id)
        self.layernorm_embedding = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout_prob)
        self.layers = nn.ModuleList(layers)
        self.register_buffer("version", torch.tensor([3.0]))  # fairseq's encoder has it and looks for it

    def forward(
        self, tokens: Tensor, *, has_padding: bool | None = None, keep_hidden: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Ids (B, T) -> features (B, T, D), and with `keep_hidden` the embeddings and each layer's output.

        Args:
            tokens: ids, padded.
            has_padding: whether any of them is <pad>; None looks, for which a GPU has to be waited for.
            keep_hidden: whether to return what is between the layers.
        """
        is_padding: Tensor | None = tokens.eq(self.pad_id)
        if has_padding is False or (has_padding is None and not is_padding.any()):  # type: ignore[union-attr]
            is_padding = None
        x = self.embed_tokens(tokens) + self.embed_positions(tokens, is_padding)  # (B, T) -> (B, T, D)
        x = self.dropout(self.layernorm_embedding(x))
        if is_padding is not None:
            x = x.masked_fill(is_padding[..., None], 0.0)
        hidden = [x]
        for layer in self.layers:
            if self.checkpoint_activations and self.training:
                x = checkpoint(layer, x, is_padding, use_reentrant=False)
            else:
                x = layer(x, is_padding)
            if keep_hidden:
                hidden.append(x)
        return x, hidden if keep_hidden else []
