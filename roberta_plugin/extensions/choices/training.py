"""The loss of multiple choice: each option has a logit, and the options of a question compete (paper section 5.3).

Shapes: B questions in the batch, S sequences of all questions, O = S - B + 1 options of a question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from roberta_plugin.finetuning.training import Criterion, KindTraining, Loss, by_example


class MultipleChoiceTraining(KindTraining):
    """Options of a question; the highest logit is the answer."""

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Cross-entropy of logits (S, 1) over each question's options, of which there may be any number."""
        choices, labels = (
            by_example(outputs[:, 0].float(), sample["offsets"]),
            sample["columns"]["label"],
        )  # (B, O), (B,)
        loss = F.cross_entropy(choices, labels, reduction="sum")
        if criterion.smoothing:  # its share is spread over the question's own options
            logs = choices.log_softmax(dim=1).masked_fill(choices.isinf(), 0)  # (B, O)
            even = (logs.sum(dim=1) / sample["offsets"].diff()).sum()
            loss = (1 - criterion.smoothing) * loss - criterion.smoothing * even
        num_correct = choices.detach().argmax(dim=1).eq(labels).sum()
        return Loss(loss, len(labels), {"accuracy": (100.0 * num_correct, len(labels))})
