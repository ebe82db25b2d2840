"""A masking that prefers rare tokens: `--masking rare`, an extension of roberta_plugin.

masker     chooses the tokens
options    its options for fairseq-train
"""

import roberta_plugin  # noqa: F401  -- where fairseq is loaded, this registers the tasks with it
from roberta_plugin.registry import Extension, MaskingEntry, register

EXTENSION = Extension(
    "rare_masking",
    __name__,
    maskings={
        "rare": MaskingEntry(".masker:RareMasker", options=".options:RareMaskingOptions", summary="more rare tokens")
    },
)
register(EXTENSION)  # for `fairseq-train --user-dir`; the entry point of the installed package needs it not
