"""Options of the fairseq task roberta_made."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass

from roberta_plugin.settings import setting
from roberta_plugin.tasks.finetuning_options import FineTuningConfig


@dataclass
class MadeConfig(FineTuningConfig):
    """Options of fine-tuning, and a size of the head."""

    classification_head_name: str = setting("made_head", "name of the new head in the checkpoint")
    made_layers: int = setting(0, "linear layers of the head", smallest=0)
    made_switch: bool = setting(False, "a way to read the same texts", changes_input=True)
