"""The answers of the masked LM: the words for `<mask>`, and how acceptable a text is.

kind     fill_mask: a text with <mask> -> the most probable tokens; score: a text -> how acceptable it is
options  how texts are scored
"""

from roberta_plugin.registry import Extension, KindEntry

EXTENSION = Extension(
    "masks",
    __name__,
    position=10,
    moved={"finetuning.kinds.masked_lm": ".kind"},
    kinds={
        "fill_mask": KindEntry(
            ".kind:FillMask", "text", options=("top_k",), option_words={"top_k": "tokens for each mask"}
        ),
        "score": KindEntry(".kind:TextScore", "text", options=("score", "per_token"), chosen_by="score"),
    },
    predict_options={"masks": ".options:MaskPredictOptions"},
)
