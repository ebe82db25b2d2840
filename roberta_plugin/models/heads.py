"""Heads on top of the features: masked LM, next-sentence prediction, classification, tags, and spans of the text.

Shapes: B blocks, T positions, D model dimension, M predicted positions in the batch, V vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from roberta_plugin.models.cpu.dropout import Dropout
from roberta_plugin.models.cpu.linear import Linear, linear
from roberta_plugin.models.linear_cross_entropy import summed_cross_entropy


class MaskedLMHead(nn.Module):
    """Features -> logits over the vocabulary, or the loss directly."""

    def __init__(
        self,
        dim: int,
        *,
        activation: Callable[[Tensor], Tensor],
        vocab_size: int,
        weight: nn.Parameter | None,
        layer_norm_eps: float = 1e-5,
    ) -> None:
        """The output matrix is `weight` (V, D), the token embeddings, or without it a matrix of the head's own."""
        super().__init__()
        self.dense = Linear(dim, dim)
        self.activation = activation
        self.layer_norm = nn.LayerNorm(dim, eps=layer_norm_eps)
        self.weight = nn.Parameter(torch.empty(vocab_size, dim).normal_(0.0, 0.02)) if weight is None else weight
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, features: Tensor, *, masked_tokens: Tensor | None = None) -> Tensor:
        """(B, T, D) -> logits (B, T, V), or (M, V) for the positions where `masked_tokens` (B, T) is set."""
        if masked_tokens is not None:
            features = features[masked_tokens]  # (B, T, D) -> (M, D)
        return linear(self._transform(features), self.weight, self.bias)

    def loss(self, features: Tensor, labels: Tensor, *, pad_id: int) -> Tensor:
        """Features (..., D) of the predicted positions and their `labels` (...) -> summed cross-entropy (), fp32, nats.

        Positions whose label is pad do not count.
        """
        features, labels = features.flatten(0, -2), labels.flatten()
        if features.device.type == "cpu":  # on a GPU, indexing by a mask is a device-to-host sync
            is_predicted = labels.ne(pad_id)
            features, labels = features[is_predicted], labels[is_predicted]
        return summed_cross_entropy(self._transform(features), self.weight, self.bias, labels, ignored=pad_id)

    def _transform(self, features: Tensor) -> Tensor:
        transformed: Tensor = self.layer_norm(self.activation(self.dense(features)))
        return transformed


class ClassificationHead(nn.Module):
    """Features of the first token -> logits of the classes, with fairseq's parameter names."""

    def __init__(
        self,
        dim: int,
        *,
        inner_dim: int,
        num_classes: int,
        activation: Callable[[Tensor], Tensor],
        dropout_prob: float,
    ) -> None:
        super().__init__()
        self.dense = Linear(dim, inner_dim)
        self.activation = activation
        self.dropout = Dropout(dropout_prob)
        self.out_proj = Linear(inner_dim, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """(B, T, D) -> (B, C)."""
        x = self.dropout(features[:, 0])  # (B, T, D) -> (B, D): <s>
        x = self.dropout(self.activation(self.dense(x)))
        logits: Tensor = self.out_proj(x)
        return logits


class NextSentenceHead(nn.Module):
    """Features of <s> -> logits of "B follows A" (class 0) and "B is random" (class 1).

    BERT's pooler, a dense layer with tanh, and a linear layer (Devlin et al. 2019, section 3.1, task 2).
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = Linear(dim, dim)
        self.out_proj = Linear(dim, 2)

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, 2)."""
        logits: Tensor = self.out_proj(torch.tanh(self.dense(features)))
        return logits


class TokenHead(nn.Module):
    """Features -> logits of classes for each token: dropout and a linear layer (Devlin et al. 2019, section 5.3)."""

    def __init__(self, dim: int, *, num_classes: int, dropout_prob: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout_prob)
        self.out_proj = Linear(dim, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, C)."""
        logits: Tensor = self.out_proj(self.dropout(features))
        return logits


class SpanLogits(NamedTuple):
    """Logits of a span head."""

    start: Tensor
    """Each token as the first of the answer (B, T)."""
    end: Tensor
    """Each token as the last of the answer (B, T)."""
    answerable: Tensor
    """The text containing an answer (B,)."""


class SpanHead(nn.Module):
    """Features -> where the answer begins and ends, and whether there is one (paper section 5.2)."""

    def __init__(
        self, dim: int, *, inner_dim: int, activation: Callable[[Tensor], Tensor], dropout_prob: float
    ) -> None:
        super().__init__()
        self.span = Linear(dim, 2)
        self.answerable = ClassificationHead(
            dim, inner_dim=inner_dim, num_classes=1, activation=activation, dropout_prob=dropout_prob
        )

    def forward(self, features: Tensor) -> SpanLogits:
        """(B, T, D) -> two (B, T) and one (B,)."""
        start, end = self.span(features).unbind(dim=-1)  # (B, T, 2) -> 2 x (B, T)
        return SpanLogits(start, end, self.answerable(features)[:, 0])
