"""Probabilities of a document's sentences -> the sentences of its summary, in the order of the text.

The most probable come first. A sentence that shares three words in a row with one that was chosen is left out (trigram
blocking; Paulus et al. 2018, and Liu and Lapata 2019, section 4.2; trigrams do not reach from one sentence into the
next, and a sentence that was left out blocks no other). The summary is complete

    with `num_sentences`     when it has so many sentences: 3, BertSum's for CNN/DailyMail, if nothing else is asked for
    with `length_share`      when it has this share of the document's words
    with `min_probability`   when no further sentence has this probability

and holds one sentence at least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.summaries.options import SummariesOptions
from roberta_plugin.finetuning.summaries.oracle import ngrams, words

NUM_SENTENCES = 3


def choose(probabilities: NDArray[np.floating[Any]], sentences: Sequence[str], options: SummariesOptions) -> list[int]:
    """Numbers of the chosen sentences, ascending.

    Example: probabilities [0.2, 0.9, 0.4, 0.8], two sentences -> [1, 3]; if these share three words in a row, [1, 2].

    Args:
        probabilities: of the sentences; ties go to the earlier one.
        sentences: their texts.
        options: how many to choose.
    """
    tokens = [words(sentence) for sentence in sentences]
    wanted = (options.length_share or 0.0) * sum(map(len, tokens))
    chosen: list[int] = []
    num_words = 0
    for number in _different(probabilities, tokens, is_blocking=not options.no_trigram_blocking):
        if options.min_probability is not None:
            is_complete = probabilities[number] < options.min_probability
        elif options.length_share is not None:
            is_complete = num_words >= wanted
        else:
            is_complete = len(chosen) == (options.num_sentences or NUM_SENTENCES)
        if is_complete and chosen:
            break
        chosen.append(number)
        num_words += len(tokens[number])
    return sorted(chosen)


def _different(
    probabilities: NDArray[np.floating[Any]], tokens: Sequence[Sequence[str]], *, is_blocking: bool
) -> Iterator[int]:
    """Numbers of the sentences, the most probable first, without those that share a trigram with an earlier one."""
    seen: set[tuple[str, ...]] = set()
    for number in np.argsort(-probabilities, kind="stable").tolist():
        trigrams = ngrams(tokens[number], 3)
        if is_blocking and not seen.isdisjoint(trigrams):
            continue
        seen |= trigrams
        yield number


def lead(sentences: Sequence[str], options: SummariesOptions) -> list[int]:
    """The first sentences of the document, as many as the options ask for (3 with `min_probability`): a baseline."""
    count = options.num_sentences or NUM_SENTENCES
    if options.length_share is None:
        return list(range(min(count, len(sentences))))
    plain = SummariesOptions(length_share=options.length_share, no_trigram_blocking=True)
    return choose(-np.arange(len(sentences), dtype=np.float64), sentences, plain)
