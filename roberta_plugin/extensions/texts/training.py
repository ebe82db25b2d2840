"""The losses of texts and pairs: labels, numbers, and sentences of a question that compete (QNLI).

Shapes: B examples in the batch, S sequences of all examples, C classes, O = S - B + 1 sentences of a question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from roberta_plugin.extensions.texts.regression import Regression
from roberta_plugin.finetuning.training import Criterion, KindTraining, Loss, by_example


class ClassificationTraining(KindTraining):
    """A label for a text or a pair."""

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Cross-entropy of logits (B, C).

        With weights of the labels, each example counts with the weight of its label, in the loss and in the number of
        examples. An update then has the gradient of torch's weighted mean over its whole batch.
        """
        logits = outputs.float()
        labels, weights = sample["columns"]["label"].long(), criterion.label_weights(logits)
        loss = F.cross_entropy(logits, labels, weights, reduction="sum", label_smoothing=criterion.smoothing)
        return Loss(loss, len(labels) if weights is None else weights[labels].sum())


class MultiLabelTraining(KindTraining):
    """Any number of labels."""

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Binary cross-entropy of logits (B, C), averaged over labels. A label's weight counts where it is present."""
        logits = outputs.float()
        labels, weights = sample["columns"]["labels"].to(logits.dtype), criterion.label_weights(logits)  # (B, C), (C,)
        loss = F.binary_cross_entropy_with_logits(logits, labels, pos_weight=weights, reduction="sum") / labels.size(1)
        return Loss(loss, len(labels))


class RegressionTraining(KindTraining):
    """A number."""

    kind: Regression

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Squared error of outputs (B, 1) to labels from 0 to 1 (STS-B) or with mean 0 and deviation 1 (your own)."""
        mean, deviation = self.kind.scale
        labels = ((sample["columns"]["label"] - mean) / deviation).float()
        return Loss(F.mse_loss(outputs[:, 0].float(), labels, reduction="sum"), len(labels))


class PairRankingTraining(KindTraining):
    """The sentence of a question that is right."""

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Cross-entropy of logits (S, 1) over each question's sentences and "none of them", whose logit is 0."""
        counts, answers = sample["offsets"].diff(), sample["columns"]["answer"]
        choices = by_example(
            outputs[:, 0].float(), sample["offsets"]
        )  # (S,) -> (B, O), -inf where there is no sentence
        choices = F.pad(choices, (0, 1))  # (B, O) -> (B, O + 1): "none of them" comes last
        loss = F.cross_entropy(choices, answers.where(answers < counts, choices.size(1) - 1), reduction="sum")
        return Loss(loss, len(answers))
