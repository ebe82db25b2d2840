"""Pairs of texts as BERT is pretrained on: --input-format segment-pair and sentence-pair (paper section 4.2, Table 2).

The page: examples/README.pretraining.md, "BERT's pretraining".

pair_chunks    lines of the .bin                       -> sentences that become a pair
pairs          (seed, pass, pair)                      -> two texts, as ids and segments (B, T)
pair_dataset   all of this as one fairseq dataset of masked batches
input_format   interface for the pretraining task: files, batches, segments, the head of next-sentence prediction
options        options of the task
head           next-sentence prediction
"""

from roberta_plugin.registry import Extension, InputFormatEntry

_FORMATS = {"segment-pair": "BERT's", "sentence-pair": "sentences"}

EXTENSION = Extension(
    "bert_pairs",
    __name__,
    position=90,
    moved={"data.pairs": ".pairs", "data.pair_chunks": ".pair_chunks", "data.pair_dataset": ".pair_dataset"},
    input_formats={
        name: InputFormatEntry(".input_format:PairFormat", options=".options:PairOptions", summary=summary)
        for name, summary in _FORMATS.items()
    },
)
