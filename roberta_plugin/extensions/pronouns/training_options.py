"""Options of fairseq-train for competing phrases (WNLI, WSC, WinoGrande)."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq

from fairseq.dataclass import FairseqDataclass

from roberta_plugin.settings import setting


@dataclass
class PhraseOptions(FairseqDataclass):
    """Options that are added to the criterion roberta_sentence_prediction."""

    margin_alpha: float = setting(
        5.0, "phrases: weight of the margin loss relative to the log-probability of the right phrase"
    )
    margin_beta: float = setting(0.4, "phrases: margin of the right phrase over the others, in nats per token")
    phrase_cross_entropy: bool = setting(
        False, "phrases: cross-entropy over them instead of the margin, as fairseq's --wsc-cross-entropy"
    )
