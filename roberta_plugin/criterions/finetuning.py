"""The registered criterions of fine-tuning: their names and options; the loss is that of the task's kind.

roberta_sentence_prediction   GLUE and own texts: labels, numbers, ranking
squad2                        spans and answerability
race                          multiple choice
roberta_tagging               a tag per word
roberta_summarization         sentences to choose
roberta_embedding             vectors of texts that belong together
"""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

from roberta_plugin.criterions.base import FineTuningCriterion
from roberta_plugin.kinds.documents import NUM_SENTENCES
from roberta_plugin.kinds.questions import MAX_ANSWER_LENGTH
from roberta_plugin.settings import setting


@dataclass
class ValidatedConfig(FairseqDataclass):
    """Options of fairseq-train by which a validation chooses checkpoints."""

    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    max_valid_steps: int | None = II("dataset.max_valid_steps")


@dataclass
class LabelsConfig(ValidatedConfig):
    """Options of criterions of labels."""

    label_smoothing: float = setting(
        0.0,
        "share of the target that is spread evenly over all labels, in training; the loss of a validation is without",
        smallest=0,
        largest=1,
    )


@dataclass
class RobertaSentencePredictionCriterionConfig(LabelsConfig):
    """Options for labels, and for competing phrases (WNLI, WSC, WinoGrande); the other losses have none."""

    margin_alpha: float = setting(
        5.0, "phrases: weight of the margin loss relative to the log-probability of the right phrase"
    )
    margin_beta: float = setting(0.4, "phrases: margin of the right phrase over the others, in nats per token")
    phrase_cross_entropy: bool = setting(
        False, "phrases: cross-entropy over them instead of the margin, as fairseq's --wsc-cross-entropy"
    )


@register_criterion("roberta_sentence_prediction", dataclass=RobertaSentencePredictionCriterionConfig)
class RobertaSentencePredictionCriterion(FineTuningCriterion):
    """Labels, numbers and ranking."""

    name, config = "roberta_sentence_prediction", RobertaSentencePredictionCriterionConfig


@register_criterion("race", dataclass=LabelsConfig)
class RaceCriterion(FineTuningCriterion):
    """Options of a question."""

    name, config = "race", LabelsConfig


@register_criterion("roberta_tagging", dataclass=LabelsConfig)
class RobertaTaggingCriterion(FineTuningCriterion):
    """Tags of words."""

    name, config = "roberta_tagging", LabelsConfig


@dataclass
class Squad2CriterionConfig(ValidatedConfig):
    """Options of the criterion."""

    max_answer_length: int = setting(MAX_ANSWER_LENGTH, "most tokens of an answer, in validation", smallest=1)


@register_criterion("squad2", dataclass=Squad2CriterionConfig)
class Squad2Criterion(FineTuningCriterion):
    """Spans of SQuAD 2.0 and 1.1."""

    name, config = "squad2", Squad2CriterionConfig


@dataclass
class SummarizationCriterionConfig(ValidatedConfig):
    """Options of the criterion, for the ROUGE of a validation."""

    num_sentences: int = setting(
        NUM_SENTENCES, "sentences of a summary whose ROUGE is logged in validation", smallest=1
    )
    length_share: float = setting(
        0.0, "instead of a number of sentences: share of the document's words; 0: not used", smallest=0, largest=1
    )


@register_criterion("roberta_summarization", dataclass=SummarizationCriterionConfig)
class SummarizationCriterion(FineTuningCriterion):
    """Sentences of documents."""

    name, config = "roberta_summarization", SummarizationCriterionConfig

    @property
    def judging(self) -> Mapping[str, Any]:
        """See `FineTuningCriterion.judging`: the length of a summary."""
        name = "length_share" if self.options["length_share"] else "num_sentences"
        return {name: self.options[name]}


@dataclass
class RobertaEmbeddingCriterionConfig(ValidatedConfig):
    """Options of the losses, each of its own."""

    scale: float = setting(20.0, "in-batch negatives: factor of cosines, the inverse of the temperature", above=0)
    triplet_margin: float = setting(
        5.0, "triplets: how much farther the wrong text should be than the right one", above=0
    )
    distance_metric: ChoiceEnum(["euclidean", "cosine", "manhattan"]) = setting(  # type: ignore[valid-type]
        "euclidean", "triplets: what is compared with the margin"
    )


@register_criterion("roberta_embedding", dataclass=RobertaEmbeddingCriterionConfig)
class RobertaEmbeddingCriterion(FineTuningCriterion):
    """Vectors of texts."""

    name, config = "roberta_embedding", RobertaEmbeddingCriterionConfig
