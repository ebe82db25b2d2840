"""Multiple-choice loss: the cross-entropy of the right option among those of its question, summed (paper section 5.3).

All options of all questions of a batch go through the model at once; a question may have any number of them. Works with
our models and with any fairseq model that has classification heads as `roberta` has.

Shapes: B questions in the batch, S options of all of them, O columns for the options of a question.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from fairseq.criterions import register_criterion

from roberta_plugin.criterions.base import FineTuningCriterion, LabelsConfig, Loss, by_example


@register_criterion("race", dataclass=LabelsConfig)
class RaceCriterion(FineTuningCriterion):
    """Sum of the cross-entropy over questions; `sample_size` is their number."""

    name = "race"

    def loss(self, outputs: Any, sample: dict[str, Any]) -> Loss:
        """Return the loss in nats of logits (S, 1); the accuracy is logged in training, too."""
        choices = by_example(outputs[:, 0].float(), sample["offsets"])  # (S,) -> (B, O)
        labels = sample["columns"]["label"]
        loss = F.cross_entropy(choices, labels, reduction="sum")
        if self.smoothing:  # over the options that there are
            logs = choices.log_softmax(dim=1).masked_fill(choices.isinf(), 0)  # (B, O)
            even = (logs.sum(dim=1) / sample["offsets"].diff()).sum()
            loss = (1 - self.smoothing) * loss - self.smoothing * even
        num_correct = choices.detach().argmax(dim=1).eq(labels).sum()
        return Loss(loss, len(labels), {"accuracy": (100.0 * num_correct, len(labels))})
