"""Texts -> model inputs: `<s> a </s>`, or `<s> a </s> </s> b </s>` for two (paper section 3.1; fairseq's convention).

Shapes: A, B tokens of the two texts, T tokens of the input.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary


class Encoder:
    """Text -> model ids: a tokenizer, and the vocabulary that numbers its symbols.

    Example: Encoder(tokenizer, vocabulary).join(a, b, max_length=512) of the ids of two texts.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        self.tokenizer, self.vocabulary = tokenizer, vocabulary
        self.to_model_id = vocabulary.tokenizer_to_model(tokenizer)  # (number of tokenizer ids,)

    def ids(self, text: str) -> NDArray[np.int32]:
        """Model ids of a text, without <s> and </s>."""
        return self.to_model_id[self.tokenizer.encode(text)] if text else np.empty(0, dtype=np.int32)

    def ids_of_all(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Model ids of many texts, faster than one by one; a text may contain line ends."""
        one_line = [text if "\n" not in text else "" for text in texts]
        ids, lengths = self.tokenizer.encode_lines(one_line)
        parts = np.split(self.to_model_id[ids], np.cumsum(lengths)[:-1]) if texts else []
        return [self.ids(text) if "\n" in text else part for text, part in zip(texts, parts, strict=True)]

    def join(
        self, a: NDArray[np.int32], b: NDArray[np.int32] | None = None, *, max_length: int, separators: int = 2
    ) -> NDArray[np.int32]:
        """Ids (A,) and (B,) -> the model's input (T,), T <= max_length: see `join`."""
        return join(self.vocabulary, a, b, max_length=max_length, separators=separators)


def join(
    vocabulary: Vocabulary,
    a: NDArray[np.int32],
    b: NDArray[np.int32] | None = None,
    *,
    max_length: int,
    separators: int = 2,
) -> NDArray[np.int32]:
    """Ids of one text (A,) or two (A,), (B,) -> the model's input (T,).

    If T would exceed `max_length`, the longer of the two texts loses tokens at its end; once both have the same length,
    both lose tokens alternately. The final </s> always stays. `separators` is how many </s> are between two texts.

    Example: a = [5, 6, 7, 8], b = [9], max_length 8 (4 specials leave room for 4) -> `<s> 5 6 7 </s> </s> 9 </s>`.
    """
    bos, eos = [vocabulary.bos_id], [vocabulary.eos_id]
    if b is None:
        return np.concatenate([bos, a[: max_length - 2], eos]).astype(np.int32)
    room = max_length - 2 - separators
    assert room >= 2, "a pair needs six tokens"
    keep_a, keep_b = shares(len(a), len(b), room)
    a, b = a[:keep_a], b[:keep_b]
    return np.concatenate([bos, a, eos * separators, b, eos]).astype(np.int32)


def shares(a: int, b: int, room: int) -> tuple[int, int]:
    """Tokens that remain of two texts with `a` and `b` tokens, by the rule of `join`.

    Example: 4 and 1 tokens, room for 4 -> 3 and 1.
    """
    if a + b <= room:
        return a, b
    keep_a = min(a, max(room - b, room - room // 2))
    return keep_a, room - keep_a
