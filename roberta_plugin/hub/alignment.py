"""Features of tokens -> features of words, as in fairseq's `alignment_utils`, by the characters that tokens cover.

A word's vector is the sum of its tokens' features; a token that covers parts of n words counts by 1/n in each. So the
vectors of <s>, all words and </s> add up to the features of all tokens, but for tokens of white space alone.

Shapes: T tokens of the sequence, W words, D model dimension.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from roberta_plugin.data.tokenizers.offsets import LocatedTokens

# Words with inner apostrophes, hyphens and decimal points; any other mark is a word by itself.
_WORD = re.compile(r"\w+(?:['\u2019.,-]\w+)*|[^\w\s]")


class AlignedWord(NamedTuple):
    """A word and its vector; `str(word)` is its text."""

    text: str
    vector: Tensor
    """(D,), or with all hidden states (layers + 1, D)."""
    start: int
    """First character in the sentence; -1 for <s> and </s>."""
    end: int
    """The character after the last one."""

    def __str__(self) -> str:
        return self.text


def split_words(text: str) -> list[str]:
    """Words and punctuation marks.

    Example: 'I said, "hello RoBERTa."' -> ['I', 'said', ',', '"', 'hello', 'RoBERTa', '.', '"'].
    """
    return _WORD.findall(text)


def word_spans(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Characters of each word, in order.

    Raises:
        ValueError: if a word does not follow the one before it in the text.
    """
    spans, position = [], 0
    for word in words:
        start = text.find(word, position) if word else -1
        if start < 0 or text[position:start].strip():
            rest = text[position : position + 40]
            raise ValueError(
                f"The word {word!r} does not come next in the text, which continues with {rest!r}: give the words of "
                "the text in their order, with nothing but white space left out."
            )
        position = start + len(word)
        spans.append((start, position))
    return spans


def align(text: str, located: LocatedTokens, spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Numbers of the tokens that cover characters of each word, counted from 0 without <s>.

    Example: the tokens "don", "'t", " go" and the words "don't" and "go" -> [[0, 1], [2]].
    """
    return [list(_tokens_in(text, located, *span)) for span in spans]


def _tokens_in(text: str, located: LocatedTokens, start: int, end: int) -> Iterator[int]:
    first = int(np.searchsorted(located.ends, start, side="right"))
    for token in range(first, len(located.ids)):
        if located.starts[token] >= end:
            break
        covered = text[max(located.starts[token], start) : min(located.ends[token], end)]
        if covered.strip():
            yield token


def features_of_words(features: Tensor, alignment: Sequence[Sequence[int]]) -> Tensor:
    """Features (T, D) with <s> and </s> -> vectors (W + 2, D) of <s>, the words, </s>."""
    weights = torch.zeros(len(alignment) + 2, len(features), device=features.device)  # (W + 2, T)
    weights[0, 0] = weights[-1, -1] = 1.0
    for word, tokens in enumerate(alignment, start=1):
        weights[word, [token + 1 for token in tokens]] = 1.0
    weights = weights / weights.sum(dim=0).clamp(min=1.0)
    return weights.to(features.dtype) @ features
