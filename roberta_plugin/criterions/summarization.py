"""The loss of extractive summaries: binary cross-entropy of each sentence (Liu and Lapata 2019, section 3.2).

A gradient is the mean over all sentences of an update, on whichever rank and in whichever batch they are.

Shapes: B documents in the batch, V sentences of all of them.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass

from roberta_plugin.criterions.base import FineTuningCriterion, Loss
from roberta_plugin.finetuning.options import SummariesOptions
from roberta_plugin.kinds.documents import NUM_SENTENCES
from roberta_plugin.settings import setting


@dataclass
class SummarizationCriterionConfig(FairseqDataclass):
    """Options of the criterion, for the ROUGE of a validation."""

    num_sentences: int = setting(NUM_SENTENCES, "sentences of a summary whose ROUGE is logged in validation")
    length_share: float = setting(0.0, "instead of a number of sentences: share of the document's words; 0: not used")


@register_criterion("roberta_summarization", dataclass=SummarizationCriterionConfig)
class SummarizationCriterion(FineTuningCriterion):
    """Sum of the cross-entropy over sentences; `sample_size` is their number."""

    name = "roberta_summarization"

    def __init__(self, task: Any, num_sentences: int, length_share: float) -> None:
        super().__init__(task)
        self.length = (
            SummariesOptions(length_share=length_share)
            if length_share
            else SummariesOptions(num_sentences=num_sentences)
        )

    @property
    def judging(self) -> Mapping[str, Any]:
        """See `FineTuningCriterion.judging`: the length of a summary."""
        return {"length": self.length}

    def loss(self, outputs: Any, sample: dict[str, Any]) -> Loss:
        """Return the loss in nats of logits (V,), and how many are on the right side of one half."""
        logits, labels = outputs.float(), sample["sentences"]["labels"]
        loss = F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum")
        num_correct = (logits.detach() > 0).eq(labels.bool()).sum()
        return Loss(loss, len(labels), {"accuracy": (100.0 * num_correct, len(labels))})
