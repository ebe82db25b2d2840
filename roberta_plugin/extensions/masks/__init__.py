"""The answers of the masked LM: the words for `<mask>`, and how acceptable a text is."""

from roberta_plugin.registry import Extension, KindEntry

EXTENSION = Extension(
    "masks",
    __name__,
    position=10,
    kinds={
        "fill_mask": KindEntry("roberta_plugin.finetuning.kinds.masked_lm:FillMask", "text", options=("top_k",)),
        "score": KindEntry(
            "roberta_plugin.finetuning.kinds.masked_lm:TextScore", "text", options=("score", "per_token")
        ),
    },
)
