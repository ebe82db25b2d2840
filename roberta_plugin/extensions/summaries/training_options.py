"""Options of fairseq-train for extractive summaries."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass

from roberta_plugin.criterions.finetuning_options import ValidatedConfig
from roberta_plugin.extensions.summaries.documents import NUM_SENTENCES
from roberta_plugin.settings import setting
from roberta_plugin.tasks.finetuning_options import FineTuningConfig

SENTENCE_LAYERS = 2  # Liu and Lapata 2019, section 3.2: the best of 1, 2 and 3


@dataclass
class SummarizationConfig(FineTuningConfig):
    """Options of the task."""

    classification_head_name: str = setting("summary_head", "name of the new head in the checkpoint")
    sentence_layers: int = setting(
        SENTENCE_LAYERS,
        "layers of a Transformer over the sentences of a document, before the linear classifier",
        smallest=0,
    )
    alternating_segments: bool = setting(
        False,
        "give the sentences segments 0 and 1 in turn, as BertSum does; for a model with segment embeddings",
        changes_input=True,
    )


@dataclass
class SummarizationCriterionConfig(ValidatedConfig):
    """Options of the criterion, for the ROUGE of a validation."""

    num_sentences: int = setting(
        NUM_SENTENCES, "sentences of a summary whose ROUGE is logged in validation", smallest=1
    )
    length_share: float = setting(
        0.0, "instead of a number of sentences: share of the document's words; 0: not used", smallest=0, largest=1
    )
