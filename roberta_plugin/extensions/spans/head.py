"""The head of answers in a passage (paper section 5.2).

Shapes: B windows, T positions, D model dimension.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from roberta_plugin.models.cpu import Linear
from roberta_plugin.models.heads import ClassificationHead, Encoder, Head


class SpanLogits(NamedTuple):
    """Logits of a span head."""

    start: Tensor
    """Each token as the first of the answer (B, T)."""
    end: Tensor
    """Each token as the last of the answer (B, T)."""
    answerable: Tensor
    """The text containing an answer (B,)."""


class SpanHead(Head):
    """Features -> logits of the answer's begin, end and existence (paper section 5.2)."""

    kind = "span"
    reads = "all"
    output_ranks = (2, 2, 1)

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.span = Linear(encoder.cfg.encoder_embed_dim, 2)
        self.answerable = ClassificationHead(encoder, num_classes=1)

    def forward(self, features: Tensor) -> SpanLogits:
        """(B, T, D) -> two (B, T) and one (B,)."""
        start, end = self.span(features).unbind(dim=-1)  # (B, T, 2) -> 2 x (B, T)
        return SpanLogits(start, end, self.answerable(features)[:, 0])
