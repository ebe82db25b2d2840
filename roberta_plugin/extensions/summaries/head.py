"""The head of extractive summaries: a logit for each sentence of a document (Liu and Lapata 2019, section 3.2).

Shapes: B documents, V sentences of all documents, M most sentences of a document, D model dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from roberta_plugin.models.cpu import Dropout, Linear
from roberta_plugin.models.heads import Encoder, Head


class SentenceHead(Head):
    """Features of each sentence's <s> -> logits of belonging to an extractive summary.

    The head is a linear layer, perhaps after a small Transformer over all sentences of a document, across windows (Liu
    and Lapata 2019, section 3.2): sinusoidal positions are added, and each layer is the encoder's, with the layer norm
    after each sublayer.
    """

    kind = "sentence"
    reads = "places"

    def __init__(self, encoder: Encoder, *, num_layers: int) -> None:
        super().__init__(encoder)
        self.layers = nn.ModuleList([encoder.new_layer() for _ in range(num_layers)])
        self.dropout = Dropout(encoder.cfg.dropout)
        self.out_proj = Linear(encoder.cfg.encoder_embed_dim, 1)

    @staticmethod
    @override
    def read_sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
        return {"num_layers": len({name.split(".")[1] for name in parameters if name.startswith("layers.")})}

    def forward(self, vectors: Tensor, sentences: Mapping[str, Any]) -> Tensor:
        """(V, D) -> (V,).

        Args:
            vectors: vectors of all sentences of a batch.
            sentences: {"document" (V,), "place" (V,)} of each sentence, from 0 on, "num_documents" B, "longest" M.
        """
        if len(self.layers):
            vectors = self._in_context(vectors, sentences)
        logits: Tensor = self.out_proj(vectors)[:, 0]  # (V, D) -> (V, 1) -> (V,)
        return logits

    def _in_context(self, vectors: Tensor, sentences: Mapping[str, Any]) -> Tensor:
        at = (sentences["document"], sentences["place"])
        shape = (sentences["num_documents"], sentences["longest"])
        x = vectors.new_zeros(*shape, vectors.size(1)).index_put(at, vectors)  # (V, D) -> (B, M, D)
        is_padding = None
        if shape[0] * shape[1] > len(vectors):
            is_padding = torch.ones(shape, dtype=torch.bool, device=x.device).index_put(at, at[0].new_zeros(()).bool())
        x = self.dropout(x + sinusoids(shape[1], x.size(2), device=x.device).to(x.dtype))
        for layer in self.layers:
            x = layer(x, is_padding, None)
        in_context: Tensor = x[at]  # (B, M, D) -> (V, D)
        return in_context


def sinusoids(length: int, dim: int, *, device: torch.device | None = None) -> Tensor:
    """Position embeddings (length, dim) of Vaswani et al. 2017, section 3.5: sine and cosine in turn, fp32."""
    rates = torch.exp(torch.arange(0, dim, 2, device=device) * (-math.log(10000.0) / dim))  # (ceil(dim / 2),)
    angles = torch.arange(length, device=device)[:, None] * rates  # -> (length, ceil(dim / 2))
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim]
