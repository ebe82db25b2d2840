"""Options of fairseq-train for tags of words."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass

from roberta_plugin.settings import setting
from roberta_plugin.tasks.finetuning_options import FineTuningConfig


@dataclass
class RobertaTaggingConfig(FineTuningConfig):
    """Options of the task."""

    classification_head_name: str = setting("token_head", "name of the new head in the checkpoint")
