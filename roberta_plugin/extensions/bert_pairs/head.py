"""The head of next-sentence prediction.

Shapes: B pairs, D model dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from roberta_plugin.models.cpu import Linear
from roberta_plugin.models.heads import SequenceHead


class NextSentenceHead(SequenceHead):
    """Features of <s> -> logits of "B follows A" (class 0) and "B is random" (class 1).

    BERT's pooler, a dense layer with tanh, and a linear layer (Devlin et al. 2019, section 3.1, task 2).
    """

    task = "nsp"
    num_classes = 2

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.dense = Linear(dim, dim)
        self.out_proj = Linear(dim, self.num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, 2)."""
        logits: Tensor = self.out_proj(torch.tanh(self.dense(features)))
        return logits
