"""Question and passage -> overlapping windows that fit a model input: `<s> question </s> </s> part </s>`.

As in BERT, a window holds as much of the passage as fits, the next window starts `doc_stride` tokens later, and the
last one ends with the passage. A token can lie in several windows. It belongs to its *best* window, which gives it the
most context on its shorter side (BERT's max-context rule): the score of a window is the smaller distance to its two
ends plus a hundredth of its length, and ties go to the earlier window. An answer is taken only from the best window of
its first token.

Example: 12 tokens, room for 6, stride 3. Each token belongs to the window marked with *:

    token            0  1  2  3  4  5  6  7  8  9 10 11
    window 0         *  *  *  *  *  .
    window 1                  .  .  *  *  *  .
    window 2                           .  .  *  *  *  *

Token 3 has 2 tokens of context on its shorter side in window 0, and none in window 1. Token 4 has 1 in both: a tie.

Shapes: W windows of a passage, U units (tokens, or the sentences of a document).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import LocatedTokens

NUM_SPECIALS = 4  # <s> </s> </s> </s>
BEFORE_PASSAGE = 3  # <s> </s> </s>, besides the question
QUESTION_LENGTH = 64  # most tokens of the question
DOC_STRIDE = 128  # half the room for the passage, if that is less: else windows of a short model would not overlap
_LENGTH_BONUS = 0.01


@dataclass(frozen=True, kw_only=True)
class WindowLayout:
    """The sizes of windows in tokens: settings of the prepared folder."""

    max_length: int
    question_length: int = QUESTION_LENGTH
    doc_stride: int = DOC_STRIDE

    @classmethod
    def with_defaults(
        cls, max_length: int, *, question_length: int | None = None, doc_stride: int | None = None
    ) -> WindowLayout:
        """The layout of windows of `max_length` tokens; None: the paper's value."""
        question_length = question_length or QUESTION_LENGTH
        room = max_length - question_length - NUM_SPECIALS
        layout = cls(
            max_length=max_length,
            question_length=question_length,
            doc_stride=doc_stride or min(DOC_STRIDE, max(1, room // 2)),
        )
        if room < 1:
            raise ValueError(
                f"--max-length {max_length} leaves no token for the passage: the question may have "
                f"{layout.question_length}, and {NUM_SPECIALS} more are <s> and </s>. Raise it, or lower "
                "--question-length."
            )
        return layout


class Window(NamedTuple):
    """A part of a passage, in tokens of the passage."""

    start: int
    length: int
    best_start: int
    """Tokens from `best_start` to before `best_stop` have their best window here."""
    best_stop: int

    def holds(self, span: tuple[int, int]) -> bool:
        """True if the whole span (first token, last token) lies in the window."""
        return self.start <= span[0] and span[1] < self.start + self.length


def cut(num_tokens: int, *, room: int, stride: int) -> list[Window]:
    """Windows of at most `room` tokens over a passage of `num_tokens`, each `stride` tokens after the previous one.

    Example:
        cut(12, room=6, stride=3)  ->  [Window(0, 6, 0, 5), Window(3, 6, 5, 8), Window(6, 6, 8, 12)]
    """
    spans = []
    start = 0
    while True:
        length = min(room, num_tokens - start)
        spans.append((start, length))
        if start + length == num_tokens:
            break
        start += min(stride, length)
    ranges = best_ranges(np.arange(num_tokens + 1), [(start, start + length) for start, length in spans])
    return [Window(*span, *best) for span, best in zip(spans, ranges, strict=True)]


def best_ranges(bounds: NDArray[np.int64], spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The units (tokens or sentences) that belong to each window, because it is the best one for them.

    Args:
        bounds: the first token of each unit, and the end of the last one (U + 1,).
        spans: the first unit of each of the W windows, and the unit after its last one.

    Returns:
        For each window, the first unit that belongs to it, and the unit after the last one.
    """
    best = np.full(len(bounds) - 1, -np.inf)
    owners = np.zeros(len(bounds) - 1, dtype=np.int64)
    for number, (first, stop) in enumerate(spans):
        left, right = bounds[first:stop] - bounds[first], bounds[stop] - bounds[first + 1 : stop + 1]
        scores = np.minimum(left, right) + _LENGTH_BONUS * (bounds[stop] - bounds[first])  # (units of the window,)
        units = slice(first, stop)
        is_better = scores > best[units]
        best[units][is_better], owners[units][is_better] = scores[is_better], number
    # The best window never moves back from one unit to the next, so each window's units are a range.
    return list(pairwise(np.searchsorted(owners, np.arange(len(spans) + 1)).tolist()))


def tokens_of(tokens: LocatedTokens, start: int, stop: int) -> tuple[int, int] | None:
    """First and last token that cover characters from `start` to before `stop`; None if no token does.

    Example: with the tokens "The", " cat", " sat" of "The cat sat", characters 4 to 7 are covered by (1, 1).
    """
    first = int(np.searchsorted(tokens.ends, start, side="right"))
    last = int(np.searchsorted(tokens.starts, stop, side="left")) - 1
    return (first, last) if first <= last else None


def is_blank(text: str, tokens: LocatedTokens) -> NDArray[np.bool_]:
    """True for each token that covers only white space, or no character at all (number of tokens,).

    Example: the tokens "a", " ", " b" of "a  b" -> [False, True, False].
    """
    spaces_before = np.cumsum([0, *map(str.isspace, text)])
    blank: NDArray[np.bool_] = spaces_before[tokens.ends] - spaces_before[tokens.starts] == tokens.ends - tokens.starts
    return blank


def question_length(max_length: int, usual: int) -> int:
    """The default for the most tokens of a question: the `usual` number, but at most a quarter of a sequence.

    Used for tables of your own, for models that do not record the number, and in advice; official tasks have the
    paper's number.
    """
    return min(usual, max(1, max_length // 4))
