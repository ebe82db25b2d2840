"""Losses of GLUE (paper section 5.1) and of own data, summed over examples.

They are cross-entropy, squared error, two ranking losses, and for several labels at once binary cross-entropy. The kind
of the prepared task selects the loss (`Kind.loss`).

Shapes: B examples in the batch, S sequences of all of them, C classes, O = S - B + 1.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from torch import Tensor

from roberta_plugin.criterions.base import FineTuningCriterion, LabelsConfig, Loss, by_example
from roberta_plugin.settings import setting


@dataclass
class RobertaSentencePredictionCriterionConfig(LabelsConfig):
    """Options for labels, and for competing phrases (WNLI, WSC, WinoGrande); the other losses have none."""

    margin_alpha: float = setting(
        5.0, "phrases: weight of the margin loss relative to the log-probability of the right phrase"
    )
    margin_beta: float = setting(0.4, "phrases: margin of the right phrase over the others, in nats per token")
    phrase_cross_entropy: bool = setting(
        False, "phrases: cross-entropy over them instead of the margin, as fairseq's --wsc-cross-entropy"
    )


@register_criterion("roberta_sentence_prediction", dataclass=RobertaSentencePredictionCriterionConfig)
class RobertaSentencePredictionCriterion(FineTuningCriterion):
    """Sum of the task's loss over examples; `sample_size` is their number."""

    name = "roberta_sentence_prediction"

    def __init__(
        self,
        task: Any,
        margin_alpha: float = 5.0,
        margin_beta: float = 0.4,
        phrase_cross_entropy: bool = False,
        label_smoothing: float = 0.0,
        best_checkpoint_metric: str = "loss",
    ) -> None:
        super().__init__(task, label_smoothing, best_checkpoint_metric)
        self.margin_alpha, self.margin_beta = margin_alpha, margin_beta
        self.phrase_cross_entropy = phrase_cross_entropy
        kinds: dict[str, Callable[[Tensor, Mapping[str, Any]], Loss]] = {
            "classification": self._classification,
            "regression": self._regression,
            "pair_ranking": self._pair_ranking,
            "phrase_ranking": self._phrase_ranking,
            "multi_label": self._multi_label,
        }
        self._loss = kinds[task.kind.loss]
        self._weights: Tensor | None = None

    @property
    def judging(self) -> Mapping[str, Any]:
        """See `FineTuningCriterion.judging`: the limits of an official task's numbers."""
        return {"limits": self.task.limits} if math.isfinite(self.task.limits[1]) else {}

    def loss(self, outputs: Any, sample: dict[str, Any]) -> Loss:
        """Return the loss in nats or squared units; its sample size is examples that have one, or their weights.

        The columns of `sample` are those of `finetuning/text_benchmark.py`, or of the files of `roberta_plugin/kinds`.
        """
        return self._loss(outputs.float(), sample)

    def _classification(self, logits: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Cross-entropy of logits (B, C).

        With weights of the labels, each example counts as much as its label, in the loss and in the number of examples:
        an update then has the gradient of torch's weighted mean over its whole batch.
        """
        labels, weights = sample["columns"]["label"].long(), self._label_weights(logits)
        loss = F.cross_entropy(logits, labels, weights, reduction="sum", label_smoothing=self.smoothing)
        return Loss(loss, len(labels) if weights is None else weights[labels].sum())

    def _label_weights(self, logits: Tensor) -> Tensor | None:
        """How much each label counts (C,); copied to the device once, because a copy waits for it."""
        if self.task.label_weights is None:
            return None
        if self._weights is None or self._weights.device != logits.device:
            self._weights = logits.new_tensor(self.task.label_weights)
        return self._weights

    def _multi_label(self, logits: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Binary cross-entropy of logits (B, C), the mean over labels; a label's weight is that of its presence."""
        labels = sample["columns"]["labels"].to(logits.dtype)  # (B, C)
        weights = self._label_weights(logits)
        loss = F.binary_cross_entropy_with_logits(logits, labels, pos_weight=weights, reduction="sum") / labels.size(1)
        return Loss(loss, len(labels))

    def _regression(self, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Squared error of outputs (B, 1) to the labels: STS-B's from 0 to 1, own ones with mean 0 and deviation 1."""
        mean, deviation = self.task.scale
        labels = ((sample["columns"]["label"] - mean) / deviation).float()
        return Loss(F.mse_loss(outputs[:, 0], labels, reduction="sum"), len(labels))

    def _pair_ranking(self, logits: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Cross-entropy of logits (S, 1) over each question's sentences and "none of them", whose logit is 0."""
        counts, answers = sample["offsets"].diff(), sample["columns"]["answer"]
        choices = by_example(logits[:, 0], sample["offsets"])  # (S,) -> (B, O), -inf where there is no sentence
        choices = F.pad(choices, (0, 1))  # (B, O) -> (B, O + 1): "none of them" comes last
        loss = F.cross_entropy(choices, answers.where(answers < counts, choices.size(1) - 1), reduction="sum")
        return Loss(loss, len(answers))

    def _phrase_ranking(self, scores: Tensor, sample: Mapping[str, Any]) -> Loss:
        """Ranking loss of the log-probabilities (S, 1): each example's first phrase against the others, if it is right.

        The loss is that of fairseq's examples/roberta/wsc/wsc_criterion.py, after Kocijan et al. 2019: for each rival,
        -right + alpha * max(0, rival - right + beta). Neither paper states alpha and beta; the defaults are those
        of fairseq's recipe for WinoGrande.
        """
        labels, counts = sample["columns"]["label"].long(), sample["offsets"].diff()
        choices = by_example(scores[:, 0], sample["offsets"])  # (S,) -> (B, O), -inf where there is no phrase
        right, rivals = choices[:, :1], choices[:, 1:]
        is_learned = labels.eq(1) & counts.gt(1)
        if self.phrase_cross_entropy:
            losses = F.cross_entropy(choices, torch.zeros_like(labels), reduction="none")  # (B,)
        else:
            behind = (rivals - right + self.margin_beta).clamp(min=0)  # 0 where there is no rival
            losses = (self.margin_alpha * behind).sum(dim=1) - right[:, 0] * (counts - 1)
        return Loss(losses.masked_select(is_learned).sum(), int(is_learned.sum()))
