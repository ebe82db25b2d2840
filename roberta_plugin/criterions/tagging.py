"""Tagging loss: the cross-entropy of each token that has a label, summed.

fairseq divides the sum by the labelled tokens of all batches and ranks of an update, so each of them weighs the same.

Shapes: S sequences of the batch, T positions (or P of one packed row), C labels.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from typing import Any

import torch.nn.functional as F
from fairseq.criterions import register_criterion

from roberta_plugin.criterions.base import FineTuningCriterion, LabelsConfig, Loss
from roberta_plugin.kinds.words import IGNORED


@register_criterion("roberta_tagging", dataclass=LabelsConfig)
class RobertaTaggingCriterion(FineTuningCriterion):
    """Sum of the cross-entropy over labelled tokens; `sample_size` is their number."""

    name = "roberta_tagging"

    def loss(self, outputs: Any, sample: dict[str, Any]) -> Loss:
        """Return the loss in nats of logits (S, T, C), of a batch of `TaggingDataset`."""
        loss = F.cross_entropy(
            outputs.flatten(0, 1).float(),
            sample["token_labels"].flatten(),  # (S, T) -> (S * T,)
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=self.smoothing,
        )
        return Loss(loss, sample["num_labels"])
