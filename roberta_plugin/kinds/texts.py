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


def text_inputs(
    texts: Sequence[tuple[str, ...]], encoder: Encoder, *, max_length: int
) -> list[tuple[NDArray[np.int32], int]]:
    """The model's input (T,) of each text or pair, and its tokens before it was cut to `max_length`.

    Example: ("Is it on?", "It is.") -> `<s> Is it on ? </s> </s> It is . </s>`; see `model_inputs.join`.
    """
    ids = iter(encoder.ids_of_all([side for text in texts for side in text]))
    inputs = []
    for text in texts:
        sides = [next(ids) for _ in text]
        num_tokens = sum(map(len, sides)) + 2 * len(sides)  # <s> a </s>, or <s> a </s> </s> b </s>
        inputs.append((encoder.join(*sides, max_length=max_length), num_tokens))
    return inputs


def sentence_inputs(
    texts: Sequence[tuple[str, ...]], encoder: Encoder, split: SplitWriter, *, max_length: int
) -> Iterator[NDArray[np.int32]]:
    """The model's input (T,) of each sentence or pair, in order; the split counts which are cut."""
    for start in terminal_bar(range(0, len(texts), _AT_ONCE), "encoding", unit="10k"):
        part = texts[start : start + _AT_ONCE]
        for text, (ids, num_tokens) in zip(part, text_inputs(part, encoder, max_length=max_length), strict=True):
            split.measure("texts" if len(text) == 1 else "pairs", num_tokens, limit=max_length)
            yield ids
