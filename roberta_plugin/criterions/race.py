"""Multiple-choice loss: the cross-entropy of the right option among those of its question, summed (paper section 5.3).

All options of all questions of a batch go through the model at once; a question may have any number of them. Works with
our models and with any fairseq model that has classification heads as `roberta` has.

Shapes: B questions in the batch, S options of all of them, O columns for the options of a question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion

from roberta_plugin.criterions import metrics
from roberta_plugin.criterions.base import FineTuningCriterion, LabelsConfig, by_example
from roberta_plugin.kinds.choices import LEVELS

_GROUPS = ("", *(f"_{level}" for level in LEVELS))  # endings of the names of accuracies and counts


@register_criterion("race", dataclass=LabelsConfig)
class RaceCriterion(FineTuningCriterion):
    """Sum of the cross-entropy over questions; `sample_size` is their number."""

    name = "race"

    def loss(self, model: Any, sample: dict[str, Any]) -> tuple[torch.Tensor, int, dict[str, Any]]:
        """Return (loss in nats, number of questions, sums to log).

        The columns of `sample` are `label`, the right option from 0, and `level`.
        """
        logits = self.task.outputs(model, sample)  # (S, 1)
        choices = by_example(logits[:, 0].float(), sample["offsets"])  # -> (B, O)
        labels = sample["columns"]["label"]
        loss = F.cross_entropy(choices, labels, reduction="sum")
        if self.smoothing:  # over the options that there are
            logs = choices.log_softmax(dim=1).masked_fill(choices.isinf(), 0)  # (B, O)
            even = (logs.sum(dim=1) / sample["offsets"].diff()).sum()
            loss = (1 - self.smoothing) * loss - self.smoothing * even
        is_right = choices.detach().argmax(dim=1).eq(labels)  # (B,)
        log = {"num_correct": is_right.sum(), "num_counted": len(labels)}
        if not model.training:
            for index, level in enumerate(LEVELS):
                is_in_level = sample["columns"]["level"].eq(index)
                log[f"num_correct_{level}"] = (is_right & is_in_level).sum()
                log[f"num_counted_{level}"] = is_in_level.sum()
        return loss, len(labels), log

    @staticmethod
    def reduce_metrics(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
        """Log loss, padding, `accuracy` and, in a validation on RACE, `accuracy_middle` and `accuracy_high` (percent).

        Accuracies are quotients of counts over the whole validation, or the whole log interval, and are not rounded.
        """
        outputs = list(logging_outputs)
        metrics.log_finetuning_loss(outputs)
        for group in _GROUPS:
            num_counted = sum(output.get(f"num_counted{group}", 0) for output in outputs)
            if num_counted > 0:
                num_correct = sum(output.get(f"num_correct{group}", 0) for output in outputs)
                metrics.log_quotient(f"accuracy{group}", num_correct, num_counted)
