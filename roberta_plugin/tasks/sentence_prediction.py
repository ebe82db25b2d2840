"""GLUE: labels, numbers, or scores to rank by, for a sentence or a pair.

The steps from official files to batches are drawn in `roberta_plugin/finetuning/glue/__init__.py`.
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
    """The task has the options of all fine-tuning tasks; what is predicted is told by the prepared folder."""


@register_task("roberta_sentence_prediction", dataclass=RobertaSentencePredictionConfig)
class RobertaSentencePredictionTask(FineTuningTask):
    """Fine-tunes on one of GLUE's tasks; the prepared folder says which."""

    cfg: RobertaSentencePredictionConfig
    name = "roberta_sentence_prediction"

    @property
    def kind(self) -> str:
        """How the model is asked: see `tasks.Kind`."""
        return str(self.prepared.settings["kind"])

    @property
    def num_classes(self) -> int:
        """Labels; 1 for regression, which has none."""
        return len(self.prepared.settings["labels"]) or 1

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and greatest number of a regression."""
        return TASKS[self.prepared.task].limits

    def register_heads(self, model: Any) -> None:
        """Add a head with a score for each class, or one score; phrases are scored by the masked-LM head."""
        if self.kind != "phrase_ranking":
            num_scores = self.num_classes if self.kind == "classification" else 1
            model.register_classification_head(self.cfg.classification_head_name, num_classes=num_scores)

    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Tensor:
        """Scores of the sequences of a batch: (S, C), or (S, 1) for all but classification."""
        if self.kind == "phrase_ranking":
            return phrase_scores(model, sample, mask_id=self.vocabulary.mask_id)
        scores: Tensor = super().outputs(model, sample)
        return scores
