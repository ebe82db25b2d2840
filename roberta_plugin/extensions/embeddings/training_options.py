"""Options of fairseq-train for vectors of texts."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq

from fairseq.dataclass import ChoiceEnum

from roberta_plugin.criterions.finetuning_options import ValidatedConfig
from roberta_plugin.settings import setting
from roberta_plugin.tasks.finetuning_options import FineTuningConfig


@dataclass
class RobertaEmbeddingConfig(FineTuningConfig):
    """Options of the task."""

    mini_batch_size: int = setting(
        0,
        "largest number of sequences in memory in training; activations are computed twice, and the gradients are as "
        "for the whole batch. 0: no limit",
        smallest=0,
    )


@dataclass
class RobertaEmbeddingCriterionConfig(ValidatedConfig):
    """Options of the losses."""

    scale: float = setting(20.0, "in-batch negatives: factor of cosines, the inverse of the temperature", above=0)
    triplet_margin: float = setting(
        5.0, "triplets: how much farther the wrong text should be than the right one", above=0
    )
    distance_metric: ChoiceEnum(["euclidean", "cosine", "manhattan"]) = setting(  # type: ignore[valid-type]
        "euclidean", "triplets: the distance that is compared with the margin"
    )
