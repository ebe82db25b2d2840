"""The loss of extractive summaries: binary cross-entropy of each sentence (Liu and Lapata 2019, section 3.2).

A gradient is the mean over all sentences of an update, on whichever rank and in whichever batch they are.

Shapes: B documents in the batch, V sentences of all of them.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics as fairseq_metrics

from roberta_plugin.criterions import metrics
from roberta_plugin.criterions.base import FineTuningCriterion
from roberta_plugin.finetuning.options import SummariesOptions
from roberta_plugin.kinds.documents import FAST, NUM_SENTENCES, average_precision, choose, f1_of_choice, rouge
from roberta_plugin.settings import setting

_COUNTS = ("num_both", "num_chosen", "num_right")


@dataclass
class SummarizationCriterionConfig(FairseqDataclass):
    """Options of the criterion, for the ROUGE of a validation."""

    num_sentences: int = setting(
        NUM_SENTENCES, "sentences of a summary whose ROUGE is logged in validation", smallest=1
    )
    length_share: float = setting(
        0.0, "instead of a number of sentences: share of the document's words; 0: not used", smallest=0, largest=1
    )


@register_criterion("roberta_summarization", dataclass=SummarizationCriterionConfig)
class SummarizationCriterion(FineTuningCriterion):
    """Sum of the cross-entropy over sentences; `sample_size` is their number."""

    name = "roberta_summarization"

    def __init__(self, task: Any, num_sentences: int, length_share: float) -> None:
        super().__init__(task)
        chosen = {"length_share": length_share} if length_share else {"num_sentences": num_sentences}
        self.options = SummariesOptions(**chosen)  # type: ignore[arg-type]

    def loss(self, model: Any, sample: dict[str, Any]) -> tuple[torch.Tensor, int, dict[str, Any]]:
        """Return (loss in nats, number of sentences, sums to log) of a batch of `DocumentsDataset`."""
        logits, labels = self.task.outputs(model, sample).float(), sample["sentences"]["labels"]
        loss = F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum")
        log = {"num_correct": (logits.detach() > 0).eq(labels.bool()).sum()}
        if not model.training:
            log |= self._of_choice(sample, logits)
        return loss, len(labels), log

    def _of_choice(self, sample: dict[str, Any], logits: torch.Tensor) -> dict[str, Any]:
        """Sums over the documents of a batch: sentences chosen and right, ROUGE, average precision."""
        documents = self.task.opened(sample["split"])
        scores = logits.detach().double().cpu().numpy()
        sums = dict.fromkeys((*_COUNTS, *FAST, "num_documents", "average_precision", "num_with_right"), 0.0)
        start = 0
        for number in sample["id"].tolist():
            sentences, summary = documents.sentences[number], documents.summaries[number]
            part = scores[start : start + len(sentences)]
            labels = documents.labels[documents.first[number] : documents.first[number + 1]]
            start += len(sentences)
            chosen = choose(part, sentences, self.options)
            sums["num_both"] += int(labels[chosen].sum())
            sums["num_chosen"] += len(chosen)
            sums["num_right"] += int(np.sum(labels))
            given = [sentences[each] for each in chosen]
            for kind, value in rouge(given, summary, kinds=FAST, is_official=documents.is_official).items():
                sums[kind] += value
            precision = average_precision(part, labels)
            sums["average_precision"] += precision or 0.0
            sums["num_with_right"] += precision is not None
            sums["num_documents"] += 1
        return sums

    @staticmethod
    def reduce_metrics(logging_outputs: Iterable[Mapping[str, Any]]) -> None:
        """Log loss, padding and `accuracy` (percent of the sentences on the right side of one half).

        In validation also `rouge1` and `rouge2` of the chosen sentences and their mean `rouge`, `f1` of the choice
        against the oracle's, and the `average_precision` of the scores, all in percent. They are quotients of sums over
        the whole validation, and are not rounded.
        """
        outputs = list(logging_outputs)
        metrics.log_finetuning_loss(outputs)
        names = ("num_correct", "sample_size", *_COUNTS, *FAST, "num_documents", "average_precision", "num_with_right")
        sums = {name: sum(float(output.get(name, 0)) for output in outputs) for name in names}
        if not sums["sample_size"]:
            return
        metrics.log_quotient("accuracy", sums["num_correct"], sums["sample_size"])
        if not sums["num_documents"]:
            return
        for kind in FAST:
            metrics.log_quotient(kind, sums[kind], sums["num_documents"])
        fairseq_metrics.log_derived(
            "rouge", lambda meters: sum(metrics.quotient(meters, kind) for kind in FAST) / len(FAST)
        )
        metrics.log_quotient("average_precision", sums["average_precision"], sums["num_with_right"])
        for name in _COUNTS:
            fairseq_metrics.log_scalar_sum(f"_{name}", sums[name])
        fairseq_metrics.log_derived("f1", lambda meters: f1_of_choice(*(meters[f"_{name}"].sum for name in _COUNTS)))
