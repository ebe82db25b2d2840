"""CORAL's head: one score of a text, and a threshold between each two neighboring labels.

Shapes: B texts, T positions, D model dimension, K labels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from roberta_plugin.models.config import ACTIVATIONS
from roberta_plugin.models.cpu import Dropout, Linear
from roberta_plugin.models.heads import Encoder, Head


class CoralHead(Head):
    """Features of <s> -> K - 1 logits; the k-th is of "the label is above the k-th one"."""

    kind = "coral"
    reads = "first"

    def __init__(self, encoder: Encoder, *, num_classes: int) -> None:
        super().__init__(encoder)
        dim = encoder.cfg.encoder_embed_dim
        self.num_classes = num_classes
        self.dense = Linear(dim, dim)
        self.activation = ACTIVATIONS[str(encoder.cfg.pooler_activation_fn)]
        self.dropout = Dropout(encoder.cfg.pooler_dropout)
        self.out_proj = Linear(dim, 1, bias=False)
        # In falling order from the start, as every optimum has it (theorem 1 of the paper).
        self.thresholds = nn.Parameter(torch.arange(num_classes - 1, 0, -1).float() / (num_classes - 1))

    @staticmethod
    def read_sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
        """The number of classes, from the thresholds between them."""
        return {"num_classes": len(parameters["thresholds"]) + 1}

    def forward(self, features: Tensor) -> Tensor:
        """(B, T, D) -> (B, K - 1)."""
        x = self.dropout(features[:, 0])  # (B, T, D) -> (B, D)
        x = self.dropout(self.activation(self.dense(x)))
        logits: Tensor = self.out_proj(x) + self.thresholds  # (B, 1) + (K - 1,) -> (B, K - 1)
        return logits
