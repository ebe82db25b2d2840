"""Options that criterions of fine-tuning share; an extension adds its own in a subclass."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass

from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from roberta_plugin.settings import setting


@dataclass
class ValidatedConfig(FairseqDataclass):
    """Options of fairseq-train by which a validation chooses checkpoints."""

    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    max_valid_steps: int | None = II("dataset.max_valid_steps")
    disable_validation: bool = II("dataset.disable_validation")


@dataclass
class LabelsConfig(ValidatedConfig):
    """Options of criterions of labels."""

    label_smoothing: float = setting(
        0.0,
        "share of the target that is spread evenly over all labels, in training; the loss of a validation is without",
        smallest=0,
        largest=1,
    )
