"""Sentences and a summary -> the sentences to learn: greedy ROUGE, as in BertSum (Liu and Lapata 2019, section 4.2).

One sentence after the other is taken that raises ROUGE-1 F + ROUGE-2 F of all chosen sentences most, until none raises
it or there are enough. This is what BertSum's program does (greedy_selection in prepro/data_builder.py of BertSum and
PreSumm), where the paper names ROUGE-2 alone. As in the program, an n-gram counts once however often it occurs;
bigrams do not reach from one sentence of the document into the next; F = 2 p r / (p + r + 1e-8); the first of equal
sentences is taken; and there are at most 3. Words are not those of the program, which takes CoreNLP's tokens and
removes all but the letters a to z, digits and spaces from them: here letters are those of any language.

Example: the summary "the cat sat" and the sentences "a dog", "the cat sat down", "the cat" -> [1]: the third adds
nothing to the second.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.kinds.documents import Ngrams, ngrams, words

ORACLE_SENTENCES = 3  # those of BertSum's program
_SMALL = 1e-8


def oracle(sentences: Sequence[str], summary: Sequence[str], *, most: int = ORACLE_SENTENCES) -> list[int]:
    """Numbers of the best sentences in the order of the text; empty if none has a word of the summary."""
    right = words(" ".join(summary))
    tokens = [words(sentence) for sentence in sentences]
    orders = [_Order([ngrams(each, order) for each in tokens], ngrams(right, order)) for order in (1, 2)]
    chosen: list[int] = []
    best = 0.0
    while len(chosen) < most:
        gains = np.sum([order.scores() for order in orders], axis=0)
        gains[chosen] = -1.0
        number = int(gains.argmax()) if len(gains) else 0
        if not len(gains) or gains[number] <= best:
            break
        best = float(gains[number])
        chosen.append(number)
        for order in orders:
            order.take(number)
    return sorted(chosen)


class _Order:
    """N-grams of one order: those of the sentences, of the summary, and of the sentences that were chosen."""

    def __init__(self, of_sentences: list[Ngrams], right: Ngrams) -> None:
        self._given = of_sentences
        self._hits = [each & right for each in of_sentences]
        self._num_right = len(right)
        self._chosen: Ngrams = frozenset()
        self._chosen_hits: Ngrams = frozenset()

    def take(self, number: int) -> None:
        """Add a sentence to those that were chosen."""
        self._chosen |= self._given[number]
        self._chosen_hits |= self._hits[number]

    def scores(self) -> NDArray[np.float64]:
        """F of the chosen sentences with each other one (number of sentences,)."""
        given = np.array([len(each - self._chosen) for each in self._given], dtype=np.float64) + len(self._chosen)
        hits = np.array([len(each - self._chosen_hits) for each in self._hits], dtype=np.float64)
        hits += len(self._chosen_hits)
        precision = hits / np.maximum(given, 1.0)
        recall = hits / max(self._num_right, 1)
        found: NDArray[np.float64] = 2.0 * (precision * recall) / (precision + recall + _SMALL)
        return found
