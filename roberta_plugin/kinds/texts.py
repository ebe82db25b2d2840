"""Texts and pairs of texts -> model inputs `<s> text </s>` or `<s> text </s> </s> pair </s>`.

Shapes: T tokens of an input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.progress import terminal_bar

_AT_ONCE = 10_000  # texts in one call of the tokenizer


def sentence_inputs(
    texts: Sequence[tuple[str, ...]], encoder: Encoder, split: SplitWriter, *, max_length: int
) -> Iterator[NDArray[np.int32]]:
    """The model's input (T,) of each sentence or pair, in order; the split counts which are cut.

    Example: ("Is it on?", "It is.") -> `<s> Is it on ? </s> </s> It is . </s>`; see `model_inputs.join`.
    """
    for start in terminal_bar(range(0, len(texts), _AT_ONCE), "encoding", unit="10k"):
        part = texts[start : start + _AT_ONCE]
        sides = [encoder.ids_of_all(side) for side in zip(*part, strict=True)]
        for ids in zip(*sides, strict=True):
            num_tokens = sum(map(len, ids)) + (2 if len(ids) == 1 else 4)  # <s> a </s>, or <s> a </s> </s> b </s>
            split.measure("texts" if len(ids) == 1 else "pairs", num_tokens, limit=max_length)
            yield encoder.join(*ids, max_length=max_length)
