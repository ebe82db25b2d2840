"""Options of --input-format segment-pair and sentence-pair."""

from dataclasses import dataclass

from roberta_plugin.settings import setting

_PAIRS = {"input_format": ("segment-pair", "sentence-pair")}


@dataclass
class PairOptions:
    """Options that are added to the pretraining task."""

    short_seq_prob: float = setting(
        0.0,
        "share of segment pairs that are shorter, of random length (BERT: 0.1)",
        smallest=0,
        largest=1,
        goes_with={"input_format": ("segment-pair",)},
    )
    next_sentence_prediction: bool = setting(
        False, "for pairs: also predict if the second text follows the first, as BERT does", goes_with=_PAIRS
    )
    no_segment_embeddings: bool = setting(
        False, "for pairs: leave out the embeddings of the first and second text that BERT has", goes_with=_PAIRS
    )
