"""The sentences of a document -> model inputs `<s> one </s> <s> two </s> ...`, in windows where they are too long.

A window holds as many whole sentences as fit. The next one starts at the first sentence that begins `doc_stride` tokens
later or more, but leaves none out; the last one ends with the document. A sentence can lie in several windows. It is
scored once, in its *best* window, which gives it the most context on its shorter side: the score of a window is the
smaller number of tokens before and after the sentence in the window plus a hundredth of the window's length; ties go
to the earlier window (BERT's rule for the tokens of a passage, applied to sentences).

Example: six sentences of 4 tokens, room for 16, stride 8. Each belongs to the window marked with *:

    sentence          0  1  2  3  4  5
    window 0          *  *  *  .
    window 1                .  *  *  *

Sentence 2 has 4 tokens of context on its shorter side in window 0, and none in window 1.

Shapes: U sentences of a document, W windows, T tokens of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.summaries.options import SummariesOptions

SENTENCE_LENGTH = 200  # BertSum's most tokens of a sentence
NUM_SPECIALS = 2  # <s> and </s> of a sentence
_LENGTH_BONUS = 0.01


@dataclass(frozen=True, kw_only=True)
class SummaryLayout:
    """How windows are cut, in tokens; settings of the prepared folder."""

    max_length: int
    sentence_length: int
    doc_stride: int

    @classmethod
    def of(cls, max_length: int, options: SummariesOptions) -> SummaryLayout:
        """The layout that the options describe.

        Raises:
            ValueError: if a sentence may be longer than `max_length` permits.
        """
        most = max_length - NUM_SPECIALS
        if most < 1 or (options.sentence_length or 1) > most:
            raise ValueError(
                f"--max-length {max_length} leaves {max(0, most)} tokens for a sentence, besides its <s> and </s>: "
                "raise it, or lower --sentence-length."
            )
        return cls(
            max_length=max_length,
            sentence_length=options.sentence_length or min(SENTENCE_LENGTH, most),
            doc_stride=options.doc_stride or max(1, max_length // 2),
        )


class Window(NamedTuple):
    """A part of a document, in sentences."""

    first: int
    stop: int
    best_first: int
    """Sentences from `best_first` to before `best_stop` have their best window here."""
    best_stop: int


def cut(lengths: Sequence[int], *, room: int, stride: int) -> list[Window]:
    """Windows of whole sentences of these lengths (U,), <s> and </s> included, at most `room` tokens each.

    Example:
        cut([4, 4, 4, 4, 4, 4], room=16, stride=8)  ->  [Window(0, 4, 0, 3), Window(2, 6, 3, 6)]
    """
    bounds = np.concatenate([[0], np.cumsum(lengths)])  # (U + 1,)
    assert np.diff(bounds).max() <= room, "a sentence that does not fit must be cut"
    spans = []
    first = 0
    while True:
        stop = int(np.searchsorted(bounds, bounds[first] + room, side="right")) - 1
        spans.append((first, stop))
        if stop == len(lengths):
            break
        following = int(np.searchsorted(bounds, bounds[first] + stride))
        first = min(max(following, first + 1), stop)
    owners = _best_windows(bounds, np.array(spans))
    # The best window never moves back from one sentence to the next, so each window's sentences are a range.
    best = pairwise(np.searchsorted(owners, np.arange(len(spans) + 1)).tolist())
    return [Window(*span, *own) for span, own in zip(spans, best, strict=True)]


def _best_windows(bounds: NDArray[np.int64], spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """First tokens (U + 1,), windows (W, 2) of sentences -> index of the best window of each sentence (U,)."""
    best = np.full(len(bounds) - 1, -np.inf)
    owners = np.zeros(len(bounds) - 1, dtype=np.int64)
    for number, (first, stop) in enumerate(spans.tolist()):
        left, right = bounds[first:stop] - bounds[first], bounds[stop] - bounds[first + 1 : stop + 1]
        scores = np.minimum(left, right) + _LENGTH_BONUS * (bounds[stop] - bounds[first])  # (sentences of the window,)
        own = slice(first, stop)
        is_better = scores > best[own]
        best[own][is_better], owners[own][is_better] = scores[is_better], number
    return owners


class Windows(NamedTuple):
    """The model inputs of a document, and where its sentences are scored."""

    sequences: list[NDArray[np.int32]]
    """Ids of each window (T,)."""
    window: NDArray[np.int32]
    """The window of each sentence (U,)."""
    position: NDArray[np.int32]
    """Position of its <s> in that window (U,)."""


def windows_of(
    sentences: Sequence[NDArray[np.int32]], *, layout: SummaryLayout, bos_id: int, eos_id: int
) -> tuple[Windows, int]:
    """The ids of a document's sentences -> its windows, and how many sentences were cut.

    Example: ids [5, 6] and [7] with <s> 0 and </s> 2 -> one window [0, 5, 6, 2, 0, 7, 2], positions [0, 4].
    """
    num_cut = sum(len(ids) > layout.sentence_length for ids in sentences)
    pieces = [np.array([bos_id, *ids[: layout.sentence_length], eos_id], dtype=np.int32) for ids in sentences]
    starts = np.cumsum([0, *map(len, pieces)])
    found = Windows([], np.empty(len(pieces), np.int32), np.empty(len(pieces), np.int32))
    for number, part in enumerate(cut(list(map(len, pieces)), room=layout.max_length, stride=layout.doc_stride)):
        found.sequences.append(np.concatenate(pieces[part.first : part.stop]))
        own = slice(part.best_first, part.best_stop)
        found.window[own] = number
        found.position[own] = starts[:-1][own] - starts[part.first]
    return found, num_cut
