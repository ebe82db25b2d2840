"""Tagging loss: the cross-entropy of each token that has a label, summed; and the entities that validation finds.

fairseq divides the sum by the labelled tokens of all batches and ranks of an update, so each of them weighs the same.

Shapes: S sequences of the batch, T positions (or P of one packed row), C labels, K types of entities; M words of the
split whose sentence lies in several windows.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from torch import Tensor

from roberta_plugin.criterions import metrics
from roberta_plugin.criterions.base import FineTuningCriterion, LabelsConfig
from roberta_plugin.kinds.entities import count_entities, scores, types_of
from roberta_plugin.kinds.words import IGNORED

_FOUND, _GOLD, _IS_FIRST = range(3)  # columns of "divided"
_SCORES = ("precision", "recall", "f1")


@register_criterion("roberta_tagging", dataclass=LabelsConfig)
class RobertaTaggingCriterion(FineTuningCriterion):
    """Sum of the cross-entropy over labelled tokens; `sample_size` is their number."""

    name = "roberta_tagging"

    def loss(self, model: Any, sample: dict[str, Any]) -> tuple[torch.Tensor, int, dict[str, Any]]:
        """Return (loss in nats, number of labelled tokens, sums to log) of a batch of `TaggingDataset`."""
        logits, labels = self.task.outputs(model, sample), sample["token_labels"]  # (S, T, C), (S, T)
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=self.smoothing,
        )
        sums = {} if model.training else self._counts(sample, logits.detach().argmax(dim=-1))
        return loss, sample["num_labels"], sums

    def _counts(self, sample: Mapping[str, Any], predicted: Tensor) -> dict[str, Tensor]:
        """What the words of a batch add to the metrics, from labels of all positions (S, T).

        Sentences within one window are counted here; the words of the others are collected, because their windows may
        be in other batches.
        """
        sentences, windows = self.task.opened(sample["split"]), sample["id"].cpu().numpy()
        words, places = sentences.words_of(windows)
        positions = sentences.positions[words]
        found = predicted.flatten().cpu().numpy()[sample["starts"].cpu().numpy()[places] + positions]
        found[positions == 0] = 0  # a word without a token
        gold, is_first, is_whole = sentences.tags[words], sentences.is_first[words], sentences.is_whole[words]
        sums = {"words": torch.tensor([(found == gold).sum(), len(gold)], dtype=torch.float64)}
        if num_types := len(types_of(self.task.kind.labels) or ()):
            counts = count_entities(gold[is_whole], found[is_whole], is_first[is_whole], num_types=num_types)
            sums["entities"] = torch.from_numpy(counts)
            divided = np.flatnonzero(~sentences.is_whole)  # (M,)
            if len(divided):
                rows = torch.from_numpy(np.stack([found, gold, is_first], axis=1)[~is_whole])
                index = torch.from_numpy(np.searchsorted(divided, words[~is_whole]))
                sums["divided"] = metrics.placed(rows, index, size=len(divided))
        return {name: values.to(predicted.device) for name, values in sums.items()}

    @staticmethod
    def reduce_metrics(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
        """Log loss and padding; in validation also `accuracy` and, for entities, `f1`, `precision`, `recall` (percent).

        They are quotients of sums over the whole validation, as `roberta evaluate` has them.
        """
        outputs = list(logging_outputs)
        metrics.log_finetuning_loss(outputs)
        for name in ("words", "entities", "divided"):
            metrics.log_sum(name, outputs)
        if any("words" in output for output in outputs):
            metrics.log_from_sums("accuracy", accuracy)
        if any("entities" in output for output in outputs):
            for place, name in enumerate(_SCORES):
                metrics.log_from_sums(name, partial(entity_score, place=place))

    def log_chosen(self, logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        """See `FineTuningCriterion.log_chosen`: the F1 of a type of entities."""
        number = self.task.kind.label_metrics().get(self.chosen)
        if number is not None and any("entities" in output for output in logging_outputs):
            metrics.log_from_sums(self.chosen, partial(entity_score, place=_SCORES.index("f1"), of_type=number))


def accuracy(sums: Mapping[str, Tensor]) -> float:
    """Percent of the words whose tag is right."""
    num_right, num_words = sums["words"].tolist()
    return 100.0 * num_right / num_words if num_words else 0.0


def entity_score(sums: Mapping[str, Tensor], *, place: int, of_type: int | None = None) -> float:
    """Precision, recall or F1 (percent) of all entities, or of a type of them."""
    counts = sums["entities"].numpy()  # (K, 3)
    if "divided" in sums:
        rows = sums["divided"].numpy().astype(np.int64)  # (M, 3)
        is_first = rows[:, _IS_FIRST].astype(np.bool_)
        counts = counts + count_entities(rows[:, _GOLD], rows[:, _FOUND], is_first, num_types=len(counts))
    return scores(counts.sum(axis=0) if of_type is None else counts[of_type])[place]
