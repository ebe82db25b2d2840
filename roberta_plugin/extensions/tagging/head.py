"""The head of tags: classes for each token.

Shapes: B texts, T positions, D model dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from typing_extensions import override

from roberta_plugin.models.cpu import Dropout, Linear
from roberta_plugin.models.heads import Encoder, Head


class TokenHead(Head):
    """Features -> logits of classes for each token: dropout and a linear layer (Devlin et al. 2019, section 5.3)."""

    kind = "token"
    reads = "all"
    output_ranks = (3,)

    def __init__(self, encoder: Encoder, *, num_classes: int) -> None:
        super().__init__(encoder)
        self.dropout = Dropout(encoder.cfg.pooler_dropout)
        self.out_proj = Linear(encoder.cfg.encoder_embed_dim, num_classes)

    @staticmethod
    @override
    def read_sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
        return {"num_classes": len(parameters["out_proj.weight"])}

    def forward(self, features: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, C)."""
        logits: Tensor = self.out_proj(self.dropout(features))
        return logits
