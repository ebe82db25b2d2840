"""GLUE: classification, regression and ranking of sentences and sentence pairs.

`roberta_plugin/finetuning/glue/__init__.py` draws the steps from official files to batches.
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairseq.tasks import register_task
from torch import Tensor

from roberta_plugin.finetuning.glue.phrase_scores import phrase_scores
from roberta_plugin.finetuning.glue.tasks import TASKS
from roberta_plugin.tasks.finetuning import FineTuningTask
from roberta_plugin.tasks.finetuning_options import FineTuningConfig


@dataclass
class RobertaSentencePredictionConfig(FineTuningConfig):
    """Options of all fine-tuning tasks; the prepared folder determines what is predicted."""


@register_task("roberta_sentence_prediction", dataclass=RobertaSentencePredictionConfig)
class RobertaSentencePredictionTask(FineTuningTask):
    """Fine-tunes on one of GLUE's tasks, that of the prepared folder."""

    cfg: RobertaSentencePredictionConfig
    name = "roberta_sentence_prediction"

    @property
    def kind(self) -> str:
        """Classification, regression or ranking: see `finetuning/glue/tasks.Kind`."""
        return str(self.prepared.settings["kind"])

    @property
    def num_classes(self) -> int:
        """Number of labels; 1 for regression, which has none."""
        return len(self.prepared.settings["labels"]) or 1

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and greatest value of a regression."""
        return TASKS[self.prepared.task].limits

    def register_heads(self, model: Any) -> None:
        """Add a head with one logit per class, or with one output; phrases are ranked by the masked-LM head."""
        if self.kind != "phrase_ranking":
            num_outputs = self.num_classes if self.kind == "classification" else 1
            model.register_classification_head(self.cfg.classification_head_name, num_classes=num_outputs)

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Tensor:
        """Logits of the S sequences of a batch: (S, C) for classification, else (S, 1).

        Regression returns the value, phrase ranking the phrase's mean log-probability.
        """
        if self.kind == "phrase_ranking":
            return phrase_scores(model, sample, mask_id=self.vocabulary.mask_id)
        logits: Tensor = super().outputs(model, sample)
        return logits
