"""The heads of pretraining: masked LM and next-sentence prediction.

Shapes: B blocks, T positions, D model dimension, M predicted positions in the batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from roberta_plugin.models.cpu.linear import Linear, linear
from roberta_plugin.models.cpu.products import Product
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
        init_std: float = 0.02,
    ) -> None:
        """The output matrix is `weight` (V, D), the token embeddings, or without it a separate matrix."""
        super().__init__()
        self.dense = Linear(dim, dim)
        self.activation = activation
        self.layer_norm = nn.LayerNorm(dim, eps=layer_norm_eps)
        self.weight = nn.Parameter(torch.empty(vocab_size, dim).normal_(0.0, init_std)) if weight is None else weight
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.products: tuple[Product, Product] | None = None
        """What multiplies by `dense` and by the output matrix, where answers have another precision than fp32."""

    def forward(self, features: Tensor, *, masked_tokens: Tensor | None = None) -> Tensor:
        """(B, T, D) -> logits (B, T, V), or (M, V) for the positions where `masked_tokens` (B, T) is set."""
        if masked_tokens is not None:
            features = features[masked_tokens]  # (B, T, D) -> (M, D)
        if self.products is not None:
            dense, vocabulary = self.products
            hidden = self.layer_norm(self.activation(dense(dense.read(features))).float())
            logits: Tensor = vocabulary(vocabulary.read(hidden)).float()
            return logits.view(*features.shape[:-1], len(self.bias))
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
