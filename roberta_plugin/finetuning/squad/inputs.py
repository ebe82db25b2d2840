"""Question and passage -> overlapping windows that fit a model input: `<s> question </s> </s> part </s>`.

As in BERT: a window holds as much of the passage as there is room for, the next one begins `doc_stride` tokens later,
and the last one ends with the passage. A token is in several windows; its *best* window is the one where the smaller
one of its distances to the window's two ends is greatest, with a hundredth of the window's length added, and the
earliest of windows that are equal in this. An answer is only taken from the best window of its first token.

Shapes: W windows of a passage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.offsets import LocatedTokens

NUM_SPECIALS = 4  # <s> </s> </s> </s>
BEFORE_PASSAGE = 3  # <s> </s> </s>, besides the question
_LENGTH_BONUS = 0.01


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How windows are cut, in tokens; the settings of the prepared folder."""

    max_length: int
    question_length: int = 64
    doc_stride: int = 128

    @classmethod
    def of(cls, max_length: int, options: Mapping[str, str]) -> Layout:
        """The layout that the options of `roberta prepare` describe.

        Raises:
            ValueError: naming the option, the bad value and what would be right.
        """
        sizes = {}
        for name in ("question-length", "doc-stride"):
            value = options.get(name)
            if value is None:
                continue
            if not value.isdecimal() or int(value) < 1:
                raise ValueError(f"{name} must be a whole number of tokens from 1 on, got {value!r}.")
            sizes[name.replace("-", "_")] = int(value)
        layout = cls(max_length=max_length, **sizes)
        if max_length < layout.question_length + NUM_SPECIALS + 1:
            raise ValueError(
                f"--max-length {max_length} leaves no token for the passage: the question may have "
                f"{layout.question_length}, and {NUM_SPECIALS} more are <s> and </s>. Raise it, or lower the option "
                "question-length."
            )
        return layout


class Window(NamedTuple):
    """A part of a passage, in tokens of the passage."""

    first: int
    length: int
    best_first: int
    """Tokens from here to `best_stop` have their best window here."""
    best_stop: int

    def holds(self, span: tuple[int, int]) -> bool:
        """Whether a span, its first and last token, lies wholly in the window."""
        return self.first <= span[0] and span[1] < self.first + self.length


def cut(num_tokens: int, *, room: int, stride: int) -> list[Window]:
    """Windows of at most `room` tokens over a passage of `num_tokens`, each `stride` after the one before."""
    spans = []
    first = 0
    while True:
        length = min(room, num_tokens - first)
        spans.append((first, length))
        if first + length == num_tokens:
            break
        first += min(stride, length)
    owners = best_windows(np.array(spans), num_tokens)
    # A later token's best window is the same one or a later one, so each window's tokens are a range.
    bounds = pairwise(np.searchsorted(owners, np.arange(len(spans) + 1)).tolist())
    return [Window(*span, *best) for span, best in zip(spans, bounds, strict=True)]


def best_windows(spans: NDArray[np.int64], num_tokens: int) -> NDArray[np.int64]:
    """The best window of each token (num_tokens,), for windows (W, 2) of a first token and a length."""
    tokens = np.arange(num_tokens)
    first, length = spans[:, :1], spans[:, 1:]  # (W, 1)
    context = np.minimum(tokens - first, first + length - 1 - tokens).astype(np.float64)  # (W, num_tokens)
    scores = np.where(context >= 0, context + _LENGTH_BONUS * length, -np.inf)
    owners: NDArray[np.int64] = scores.argmax(axis=0)
    return owners


def tokens_of(tokens: LocatedTokens, start: int, stop: int) -> tuple[int, int] | None:
    """First and last token that cover characters from `start` to before `stop`; None if none does."""
    first = int(np.searchsorted(tokens.ends, start, side="right"))
    last = int(np.searchsorted(tokens.starts, stop, side="left")) - 1
    return (first, last) if first <= last else None


def is_blank(text: str, tokens: LocatedTokens) -> NDArray[np.bool_]:
    """Whether each token covers nothing but white space, or nothing at all (number of tokens,)."""
    spaces_before = np.cumsum([0, *map(str.isspace, text)])
    blank: NDArray[np.bool_] = spaces_before[tokens.ends] - spaces_before[tokens.starts] == tokens.ends - tokens.starts
    return blank
