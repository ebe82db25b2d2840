"""Losses of GLUE (paper section 5.1) and of own data, summed over examples.

They are cross-entropy, squared error, two ranking losses, and for several labels at once binary cross-entropy. The kind
of the prepared task selects the loss (`Kind.loss`). Metrics are computed from the counts or predictions of a whole
validation, so they are the official ones on several ranks too.

Shapes: B examples in the batch, S sequences of all of them, C classes, N examples of the split, O = S - B + 1, M
thresholds.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from torch import Tensor

from roberta_plugin.criterions import metrics
from roberta_plugin.criterions.base import FineTuningCriterion, LabelsConfig, by_example
from roberta_plugin.kinds import metrics as of_split
from roberta_plugin.kinds.pair_ranking import decide
from roberta_plugin.settings import setting

Sums = dict[str, Any]
LaterSums = Callable[[], Sums]  # of a validation alone; in training nothing is computed for them


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
        kinds: dict[str, Callable[[Tensor, Mapping[str, Any]], tuple[Tensor, int | Tensor, LaterSums]]] = {
            "classification": self._classification,
            "regression": self._regression,
            "pair_ranking": self._pair_ranking,
            "phrase_ranking": self._phrase_ranking,
            "multi_label": self._multi_label,
        }
        self._loss = kinds[task.kind.loss]
        self._weights: Tensor | None = None

    def loss(self, model: Any, sample: dict[str, Any]) -> tuple[Tensor, int | Tensor, Sums]:
        """Return (loss in nats or squared units, number of examples that have a loss or their weights, sums to log).

        The columns of `sample` are those of `finetuning/text_benchmark.py`, or of the files of `roberta_plugin/kinds`.
        """
        logits = self.task.outputs(model, sample).float()
        loss, sample_size, sums = self._loss(logits, sample)
        return loss, sample_size, {} if model.training else sums()

    def _classification(self, logits: Tensor, sample: Mapping[str, Any]) -> tuple[Tensor, int | Tensor, LaterSums]:
        """Cross-entropy of logits (B, C).

        With weights of the labels, each example counts as much as its label, in the loss and in the number of examples:
        an update then has the gradient of torch's weighted mean over its whole batch.
        """
        labels = sample["columns"]["label"].long()

        def sums() -> Sums:
            counts = {"confusion": confusion(labels, logits.argmax(dim=1), self.task.num_classes)}
            if self.chosen not in of_split.OF_SCORES:
                return counts
            scores = logits.double().diff(dim=1)[:, 0]  # (B, 2) -> (B,)
            return {**counts, **self._placed(sample, prediction=scores, answer=labels)}

        weights = self._label_weights(logits)
        loss = F.cross_entropy(logits, labels, weights, reduction="sum", label_smoothing=self.smoothing)
        return loss, len(labels) if weights is None else weights[labels].sum(), sums

    def _label_weights(self, logits: Tensor) -> Tensor | None:
        """How much each label counts (C,); copied to the device once, because a copy waits for it."""
        if self.task.label_weights is None:
            return None
        if self._weights is None or self._weights.device != logits.device:
            self._weights = logits.new_tensor(self.task.label_weights)
        return self._weights

    def _multi_label(self, logits: Tensor, sample: Mapping[str, Any]) -> tuple[Tensor, int, LaterSums]:
        """Binary cross-entropy of logits (B, C), the mean over labels; a label's weight is that of its presence."""
        labels = sample["columns"]["labels"].to(logits.dtype)  # (B, C)
        weights = self._label_weights(logits)
        loss = F.binary_cross_entropy_with_logits(logits, labels, pos_weight=weights, reduction="sum") / labels.size(1)
        return loss, len(labels), lambda: {"labels_by_threshold": label_counts(labels, logits.sigmoid())}

    def _regression(self, outputs: Tensor, sample: Mapping[str, Any]) -> tuple[Tensor, int, LaterSums]:
        """Squared error of outputs (B, 1) to the labels: STS-B's from 0 to 1, own ones with mean 0 and deviation 1."""
        mean, deviation = self.task.scale
        labels = ((sample["columns"]["label"] - mean) / deviation).float()
        loss = F.mse_loss(outputs[:, 0], labels, reduction="sum")

        def sums() -> Sums:
            prediction = outputs[:, 0].double() * deviation + mean
            if math.isfinite(self.task.limits[1]):  # as `roberta evaluate` writes and scores an official task's
                prediction = prediction.clamp(*self.task.limits).round(decimals=3)
            return self._placed(sample, prediction=prediction, answer=sample["columns"]["label"])

        return loss, len(labels), sums

    def _pair_ranking(self, logits: Tensor, sample: Mapping[str, Any]) -> tuple[Tensor, int, LaterSums]:
        """Cross-entropy of logits (S, 1) over each question's sentences and "none of them", whose logit is 0."""
        counts, answers = sample["offsets"].diff(), sample["columns"]["answer"]
        choices = by_example(logits[:, 0], sample["offsets"])  # (S,) -> (B, O), -inf where there is no sentence
        choices = F.pad(choices, (0, 1))  # (B, O) -> (B, O + 1): "none of them" comes last
        loss = F.cross_entropy(choices, answers.where(answers < counts, choices.size(1) - 1), reduction="sum")
        if len(logits) > len(answers):  # training: no metric
            return loss, len(answers), dict
        columns = {"question": sample["columns"]["question"], "answer": answers}
        return loss, len(answers), lambda: self._placed(sample, prediction=logits[:, 0], **columns)

    def _phrase_ranking(self, scores: Tensor, sample: Mapping[str, Any]) -> tuple[Tensor, int, LaterSums]:
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
        wins = counts.gt(1) & right.ge(rivals).all(dim=1)
        loss = losses.masked_select(is_learned).sum()
        return loss, int(is_learned.sum()), lambda: {"confusion": confusion(labels, wins.long(), 2)}

    @staticmethod
    def _placed(sample: Mapping[str, Any], **columns: Tensor) -> Sums:
        """Columns (B,) -> (N,), at the indices of the examples in the split; "counted" (N,) is 1 at these indices."""
        columns["counted"] = torch.ones_like(sample["id"])
        return {
            name: metrics.placed(values, sample["id"], size=sample["num_examples"]) for name, values in columns.items()
        }

    @staticmethod
    def reduce_metrics(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
        """Log loss and padding, and after a validation GLUE's metrics, times 100.

        Classification and ranking log `accuracy`, `macro_f1` and `mcc`, with two classes also `f1` and `acc_and_f1`;
        regression logs `pearson`, `spearman` and `pearson_spearman`, and in units of the label `mae` and `rmse`;
        several labels log `tuned_micro_f1`, and the threshold at which it is reached.
        """
        outputs = list(logging_outputs)
        metrics.log_finetuning_loss(outputs)
        if "confusion" in outputs[0]:
            metrics.log_sum("confusion", outputs)
            names = of_split.OF_COUNTS if outputs[0]["confusion"].size(0) == 2 else ("accuracy", "macro_f1", "mcc")
            for name in names:
                metrics.log_from_sums(name, _of(of_split.OF_COUNTS[name], "confusion"))
        elif "labels_by_threshold" in outputs[0]:
            metrics.log_sum("labels_by_threshold", outputs)
            name = "labels_by_threshold"
            metrics.log_from_sums("tuned_micro_f1", _of(lambda counts: of_split.micro_f1(counts).max(), name))
            metrics.log_from_sums("tuned_threshold", _of(of_split.best_threshold, name, times=1.0))
        elif "counted" in outputs[0]:
            for name in ("counted", "prediction", "question", "answer"):
                metrics.log_sum(name, outputs)
            size, of_both = outputs[0]["counted"].numel(), ("prediction", "answer")
            if "question" in outputs[0]:
                for name in of_split.OF_COUNTS:
                    metrics.log_from_sums(name, _of_ranking(name), num_examples=size)
                return
            for name, function in of_split.OF_PREDICTIONS.items():
                metrics.log_from_sums(name, _of(function, *of_both), num_examples=size)
            for name, error in (("mae", of_split.mae), ("rmse", of_split.rmse)):
                metrics.log_from_sums(name, _of(error, *of_both, times=1.0), num_examples=size)

    def log_chosen(self, logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        """See `FineTuningCriterion.log_chosen`: ROC-AUC, average precision, the F1 of a label, or macro-F1."""
        first, name = logging_outputs[0], self.chosen
        if "confusion" in first and "counted" in first:
            for part in ("counted", "prediction", "answer"):
                metrics.log_sum(part, logging_outputs)
            function = _of(of_split.OF_SCORES[name], "answer", "prediction")
            metrics.log_from_sums(name, function, num_examples=first["counted"].numel())
        elif "confusion" in first or "labels_by_threshold" in first:
            number = self.task.kind.label_metrics().get(name)
            if number is not None or name == "tuned_macro_f1":
                metrics.log_from_sums(name, partial(_label_f1, number=number))


def confusion(labels: Tensor, predictions: Tensor, num_classes: int) -> Tensor:
    """Counts (C, C) of ids (B,): row is the right class, column the predicted one; float64."""
    pairs = labels * num_classes + predictions
    counts = torch.zeros(num_classes**2, dtype=torch.float64, device=labels.device)
    return counts.index_add(0, pairs, torch.ones_like(pairs, dtype=torch.float64)).view(num_classes, num_classes)


def label_counts(labels: Tensor, probabilities: Tensor) -> Tensor:
    """Counts (M, 3, C) at each of `metrics.THRESHOLDS`: right predictions, all predictions, all labels; float64.

    Labels, 0 or 1, and probabilities are (B, C).
    """
    thresholds = torch.as_tensor(of_split.THRESHOLDS, device=labels.device)
    reached = torch.bucketize(probabilities.double(), thresholds, right=True)  # (B, C), from 0 to M
    num_labels = labels.size(1)
    places = (reached * num_labels + torch.arange(num_labels, device=labels.device)).flatten()
    values = torch.stack([labels.double().flatten(), torch.ones_like(places, dtype=torch.float64)])  # (2, B * C)
    counts = torch.zeros(2, (len(thresholds) + 1) * num_labels, dtype=torch.float64, device=labels.device)
    counts = counts.index_add(1, places, values).view(2, -1, num_labels)  # (2, M + 1, C): number of thresholds reached
    at_least = counts.flip(1).cumsum(1).flip(1)[:, 1:]  # (2, M, C)
    present = labels.double().sum(dim=0).expand_as(at_least[0])
    return torch.stack([*at_least, present], dim=1)


def _of(function: Callable[..., float], *names: str, times: float = 100.0) -> Callable[[Mapping[str, Tensor]], float]:
    """A metric of these sums, in percent unless told otherwise."""
    return lambda sums: times * float(function(*(sums[name].numpy() for name in names)))


def _label_f1(sums: Mapping[str, Tensor], *, number: int | None) -> float:
    """F1 of a label in percent, of several labels at the best threshold of micro-F1; or the mean of all (None)."""
    if "confusion" in sums:
        f1s = of_split.class_f1s(sums["confusion"].numpy())
    else:
        counts = sums["labels_by_threshold"].numpy()  # (M, 3, C)
        at_best = counts[np.searchsorted(of_split.THRESHOLDS, of_split.best_threshold(counts))]
        f1s = of_split.f1_of(*at_best)
    return 100 * float(f1s.mean() if number is None else f1s[number])


def _of_ranking(name: str) -> Callable[[Mapping[str, Tensor]], float]:
    def function(sums: Mapping[str, Tensor]) -> float:
        predictions = decide(sums["prediction"].numpy(), sums["question"].long().numpy())
        counts = of_split.confusion(1 - sums["answer"].numpy(), predictions, num_classes=2)
        return 100 * of_split.OF_COUNTS[name](counts)

    return function
