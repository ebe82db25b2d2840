"""Options of fairseq-train for questions about passages."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass

from roberta_plugin.criterions.finetuning_options import ValidatedConfig
from roberta_plugin.extensions.spans.questions import MAX_ANSWER_LENGTH
from roberta_plugin.settings import setting
from roberta_plugin.tasks.finetuning_options import FineTuningConfig


@dataclass
class Squad2Config(FineTuningConfig):
    """Options of the task."""

    classification_head_name: str = setting("span_head", "name of the new head in the checkpoint")


@dataclass
class Squad2CriterionConfig(ValidatedConfig):
    """Options of the criterion."""

    max_answer_length: int = setting(MAX_ANSWER_LENGTH, "most tokens of an answer, in validation", smallest=1)
