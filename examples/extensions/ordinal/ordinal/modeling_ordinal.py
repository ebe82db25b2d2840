"""Labels in an order (CORAL, Cao et al. 2020), in a class of transformers. Licence: MIT.

`logits` (B, K - 1) are of "the label is above the k-th one": the label's number is `(logits > 0).sum(-1)`.
"""

# mypy: disable-error-code="no-any-return, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import SequenceClassifierOutput

from .modeling_roberta_plugin import _WithHead


class CoralHead(nn.Module):
    """Features of <s> (B, D) -> logits (B, K - 1)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.pooler_activation_fn]
        self.dropout = nn.Dropout(config.classifier_dropout or 0.0)
        self.out_proj = nn.Linear(config.hidden_size, 1, bias=False)
        self.thresholds = nn.Parameter(torch.zeros(config.num_labels - 1))

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return self.out_proj(self.dropout(self.activation(self.dense(x)))) + self.thresholds


class RobertaPluginForOrdinalRegression(_WithHead):
    """Logits (B, K - 1)."""

    output = SequenceClassifierOutput
    reads_first = True

    def _make_head(self, config: Any) -> None:
        self.classifier = CoralHead(config)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        is_above = labels[:, None] > torch.arange(logits.size(1), device=logits.device)
        return F.binary_cross_entropy_with_logits(logits, is_above.to(logits.dtype), reduction="none").sum(1).mean()
