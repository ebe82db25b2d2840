"""GLUE and own data: classification, regression and ranking of texts and pairs of texts.

`roberta_plugin/finetuning/glue/__init__.py` and `.../custom/__init__.py` draw the steps from files to batches.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairseq.tasks import register_task
from torch import Tensor

from roberta_plugin.finetuning.glue.tasks import TASKS
from roberta_plugin.kinds.phrases import phrase_scores
from roberta_plugin.tasks.finetuning import FineTuningTask
from roberta_plugin.tasks.finetuning_options import FineTuningConfig


@dataclass
class RobertaSentencePredictionConfig(FineTuningConfig):
    """Options of all fine-tuning tasks; the prepared folder determines what is predicted."""


@register_task("roberta_sentence_prediction", dataclass=RobertaSentencePredictionConfig)
class RobertaSentencePredictionTask(FineTuningTask):
    """Fine-tunes on one of GLUE's tasks or on own data, as the prepared folder says."""

    cfg: RobertaSentencePredictionConfig
    name = "roberta_sentence_prediction"

    @property
    def num_classes(self) -> int:
        """Number of labels; 1 for regression, which has none."""
        return len(self.prepared.settings["labels"]) or 1

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and greatest value of a regression; own data have none."""
        task = TASKS.get(self.prepared.task)
        return (-math.inf, math.inf) if task is None else task.limits

    @property
    def scale(self) -> tuple[float, float]:
        """Mean and deviation of a regression's labels: the model learns (label - mean) / deviation. GLUE: (0, 1)."""
        return self.prepared.settings.get("mean", 0.0), self.prepared.settings.get("deviation", 1.0)

    @property
    def label_weights(self) -> list[float] | None:
        """How much each label counts in the loss (C,); None: all the same."""
        return self.prepared.settings.get("weights")

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Tensor:
        """Logits of the S sequences of a batch: (S, C) for labels, else (S, 1).

        Regression returns the value, phrase ranking the phrase's mean log-probability.
        """
        if self.kind.loss == "phrase_ranking":
            return phrase_scores(model, sample, mask_id=self.vocabulary.mask_id)
        logits: Tensor = super().outputs(model, sample)
        return logits
