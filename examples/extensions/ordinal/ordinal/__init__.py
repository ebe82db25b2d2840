"""Ordinal regression with CORAL's head and loss (Cao et al. 2020, arXiv 1901.07884): an extension of roberta_plugin.

kind              rows -> labels in an order; logits -> answers and metrics
head              features -> K - 1 logits
training          the loss
modeling_ordinal  the head in transformers, for exports
"""

from roberta_plugin.registry import Extension, HeadEntry, KindEntry

EXTENSION = Extension(
    "ordinal",
    __name__,
    kinds={
        "ordinal": KindEntry(
            ".kind:Ordinal",
            "text [text_pair]",
            training=".training:OrdinalTraining",
            is_own=True,
            errors=("mae",),
            shared_options=("labels", "label_names", "long_texts"),
        )
    },
    heads={"coral": HeadEntry(".head:CoralHead")},
)
