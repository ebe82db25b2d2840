"""Words of a text -> tokens, overlapping windows `<s> part </s>`, and where in them each word is.

The words are tokenized as in a text with one space between them; a word's tokens do not depend on its neighbours. A
text that does not fit into a window is cut as in SQuAD (`finetuning/squad/inputs.py`): a word belongs to the window
that gives its first token the most context on its shorter side, and only this window's answer counts.

Example: 3 words of 1, 4 and 2 tokens, room for 5 tokens, a new window every 2. Window 0 holds the tokens 0 to 4, window
1 the tokens 2 to 6. Window 0 is the best one of the tokens 0 to 3, window 1 that of the others. So the words 0 and 1
belong to window 0, at the positions 1 and 2 behind <s>, and word 2 to window 1, at position 4.

A word without a token, which is empty, white space, or removed by the tokenizer, is at position 0, that of <s>: it is
never learned and is predicted to be outside of entities.

Shapes: W words of a text, T tokens of a window with <s> and </s>.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.squad.inputs import cut

NUM_SPECIALS = 2  # <s> </s>
IGNORED = -100  # the label of tokens without one, as torch's cross_entropy has it
_MAX_REMEMBERED_WORDS = 2**18


@dataclass(frozen=True, kw_only=True)
class TaggingLayout:
    """How sentences become model inputs; the settings of the prepared folder."""

    max_length: int
    doc_stride: int = 128
    label_pieces: str = "first"
    context: str = "sentence"

    @classmethod
    def of(cls, max_length: int, options: TaggingOptions) -> TaggingLayout:
        """The layout that the options describe.

        Raises:
            ValueError: if `max_length` leaves no room for a token.
        """
        if max_length <= NUM_SPECIALS:
            raise ValueError(
                f"--max-length must be {NUM_SPECIALS + 1} or more, for <s>, a token and </s>: {max_length}."
            )
        names = ("doc_stride", "label_pieces", "context")
        given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
        return cls(max_length=max_length, **given)


class Window(NamedTuple):
    """A model input of a text."""

    tokens: NDArray[np.int32]
    """`<s> part </s>` (T,)."""
    words: range
    """The words of the text that belong to this window; those of all windows follow each other."""
    positions: NDArray[np.int32]
    """Of the first token of each of these words; 0 for a word without one."""
    word_of_token: NDArray[np.int32]
    """The word of each token that has its best window here, IGNORED for all others (T,)."""
    is_first: NDArray[np.bool_]
    """Whether a token is the first one of its word (T,)."""


class WordEncoder:
    """Words -> the model's tokens, each word once."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, NDArray[np.int32]] = {}

    def tokens_of_all(self, texts: Sequence[Sequence[str]]) -> list[list[NDArray[np.int32]]]:
        """Model ids of each word of each text.

        Example: of ["New", "York"] those of "New" and " York".
        """
        spelled = [_spelled(words) for words in texts]
        missing = list({word for words in spelled for word in words} - self._known.keys())
        if len(self._known) + len(missing) > _MAX_REMEMBERED_WORDS:
            self._known.clear()
            missing = list({word for words in spelled for word in words})
        self._known |= zip(missing, self._encoder.ids_of_all(missing), strict=True)
        return [[self._known[word] for word in words] for words in spelled]


def _spelled(words: Sequence[str]) -> list[str]:
    """Each word with the space before it, if it is not the first; a blank word is left out of the text.

    Example: ["New", "", "York"] -> ["New", "", " York"].
    """
    result: list[str] = []
    space = ""
    for word in words:
        result.append(space + word if word.strip() else "")
        space = " " if word.strip() else space
    return result


def windows_of(tokens: Sequence[NDArray[np.int32]], layout: TaggingLayout, *, bos_id: int, eos_id: int) -> list[Window]:
    """The windows of a text, from the tokens of each of its words (W,); there is one at least.

    Example: see the head of this file; `word_of_token` of its window 0 is [-100, 0, 1, 1, 1, -100, -100].
    """
    counts = np.array([len(ids) for ids in tokens], dtype=np.int64)
    flat = np.concatenate([np.empty(0, dtype=np.int32), *tokens])
    first = np.cumsum(counts) - counts  # (W,)
    of_token = np.repeat(np.arange(len(tokens), dtype=np.int32), counts)
    begins = np.zeros(len(flat), dtype=np.bool_)
    begins[first[counts > 0]] = True
    result = []
    next_word = 0
    for window in cut(len(flat), room=layout.max_length - NUM_SPECIALS, stride=layout.doc_stride):
        stop = window.start + window.length
        is_last = stop == len(flat)
        own = slice(window.best_start, window.best_stop)
        last_word = len(tokens) if is_last else int(np.searchsorted(first, window.best_stop, side="left"))
        words = range(next_word, max(next_word, last_word))
        next_word = words.stop
        word_of_token = np.full(window.length + NUM_SPECIALS, IGNORED, dtype=np.int32)
        shift = 1 - window.start
        word_of_token[own.start + shift : own.stop + shift] = of_token[own]
        is_first = np.zeros(window.length + NUM_SPECIALS, dtype=np.bool_)
        is_first[1:-1] = begins[window.start : stop]
        positions = np.where(counts[words.start : words.stop] > 0, first[words.start : words.stop] + shift, 0)
        result.append(
            Window(
                tokens=np.concatenate([[bos_id], flat[window.start : stop], [eos_id]]).astype(np.int32),
                words=words,
                positions=positions.astype(np.int32),
                word_of_token=word_of_token,
                is_first=is_first,
            )
        )
    return result


def token_labels(window: Window, labels: Sequence[int], *, continuing: NDArray[np.int64] | None) -> NDArray[np.int16]:
    """The label that each token of a window is to learn, IGNORED for none (T,).

    Args:
        window: of a text.
        labels: of the words of the text.
        continuing: of each label, that of the further tokens of its words; None: only first tokens are learned.
    """
    result = np.full(len(window.tokens), IGNORED, dtype=np.int16)
    is_learned = window.word_of_token != IGNORED
    if continuing is None:
        is_learned &= window.is_first
    found = np.asarray(labels, dtype=np.int64)[window.word_of_token[is_learned]]
    if continuing is not None:
        found = np.where(window.is_first[is_learned], found, continuing[found])
    result[is_learned] = found
    return result
