"""CORAL's loss: the binary cross-entropies of "the label is above the k-th one" (equation 4 of the paper, weights 1).

Shapes: B examples in the batch, K labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from roberta_plugin.finetuning.training import Criterion, KindTraining, Loss


class OrdinalTraining(KindTraining):
    """Labels in an order."""

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """The loss of logits (B, K - 1)."""
        logits = outputs if outputs.dtype == torch.float64 else outputs.float()
        ranks = sample["columns"]["label"]
        is_above = ranks[:, None] > torch.arange(logits.size(1), device=ranks.device)  # (B, K - 1)
        loss = F.binary_cross_entropy_with_logits(logits, is_above.to(logits.dtype), reduction="sum")
        return Loss(loss, len(ranks))
