"""Words of a text in overlapping windows `<s> part </s>`, the labels of their tokens, and the files of a split.

The words are tokenized as in a text with one space between them; a word's tokens do not depend on its neighbours. A
text that does not fit into a window is cut as in SQuAD (`windows`): a word belongs to the window that gives its first
token the most context on its shorter side, and only this window's answer counts.

Example: 3 words of 1, 4 and 2 tokens, room for 5 tokens, a new window every 2. Window 0 holds the tokens 0 to 4, window
1 the tokens 2 to 6. Window 0 is the best one for the tokens 0 to 3, window 1 for the other tokens. So the words 0 and 1
belong to window 0, at the positions 1 and 2 behind <s>, and word 2 belongs to window 1, at position 4.

A word without a token, because it is empty, white space, or removed by the tokenizer, is at position 0, the position of
<s>: it is never learned and is predicted to be outside of entities.

A split has an example per window. Column `first_word`: the number of the first word that belongs to the window, counted
over the split. All words before the next window's first word belong to the window. Arrays for the W words and S
sentences of the split: `positions` (W,), the place of each word's first token in its window, 0 for a word without
tokens; `tags` (W,), the labels of the words, if they are known; `sentences` (S + 1,), sentence i has the words
sentences[i] to sentences[i + 1]; `token_labels`, one for each token of the .bin file, -100 where nothing is learned.
Records: {"words"} of each sentence.

Shapes: W words of a text, or of a split of S sentences in N windows; T tokens of a window with <s> and </s>.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.white_space import is_blank
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.layouts.windows import cut
from roberta_plugin.finetuning.prepared import DIVIDED, SplitWriter
from roberta_plugin.progress import terminal_bar

_TEXTS_PER_CHUNK = 1024

NUM_SPECIALS = 2  # <s> </s>
IGNORED = -100  # the label of tokens without a label, the default of torch's cross_entropy
_MAX_REMEMBERED_WORDS = 2**18


@dataclass(frozen=True, kw_only=True)
class TaggingLayout:
    """How sentences become model inputs; the settings of the prepared folder."""

    max_length: int
    doc_stride: int = 128
    label_pieces: str = "first"
    context: str = "sentence"

    @classmethod
    def with_defaults(cls, max_length: int, **options: Any) -> TaggingLayout:
        """The layout of windows of `max_length` tokens. Options that are None have their usual values."""
        if max_length <= NUM_SPECIALS:
            raise ValueError(
                f"--max-length must be {NUM_SPECIALS + 1} or more, for <s>, a token and </s>: {max_length}."
            )
        return cls(max_length=max_length, **{name: value for name, value in options.items() if value is not None})


class Window(NamedTuple):
    """A model input of a text."""

    tokens: NDArray[np.int32]
    """`<s> part </s>` (T,)."""
    words: range
    """The words of the text that belong to this window. They follow the words of the window before."""
    positions: NDArray[np.int32]
    """Place of the first token of each of these words; 0 for a word without a token."""
    word_of_token: NDArray[np.int32]
    """The word of each token that has its best window here, IGNORED for all others (T,)."""
    is_first: NDArray[np.bool_]
    """True for the first token of each word (T,)."""


class WordEncoder:
    """Words -> the model's tokens, each word once."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._ids: dict[str, NDArray[np.int32]] = {}

    def tokens_of_all(self, texts: Sequence[Sequence[str]]) -> list[list[NDArray[np.int32]]]:
        """Model ids of each word of each text.

        Example: ["New", "York"] -> the ids of "New" and the ids of " York".
        """
        spelled = [_add_spaces(words) for words in texts]
        missing = list({word for words in spelled for word in words} - self._ids.keys())
        if len(self._ids) + len(missing) > _MAX_REMEMBERED_WORDS:
            self._ids.clear()
            missing = list({word for words in spelled for word in words})
        self._ids |= zip(missing, self._encoder.ids_of_all(missing), strict=True)
        return [[self._ids[word] for word in words] for words in spelled]


def _add_spaces(words: Sequence[str]) -> list[str]:
    """The words with a space before all but the first one. A blank word is left out of the text.

    Example: ["New", "", "York"] -> ["New", "", " York"].
    """
    result: list[str] = []
    space = ""
    for word in words:
        result.append("" if is_blank(word) else space + word)
        space = space if is_blank(word) else " "
    return result


def windows_of(tokens: Sequence[NDArray[np.int32]], layout: TaggingLayout, *, bos_id: int, eos_id: int) -> list[Window]:
    """The windows of a text, at least one, from the tokens of each of its words (W,).

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
        best = slice(window.best_start, window.best_stop)
        last_word = len(tokens) if is_last else int(np.searchsorted(first, window.best_stop, side="left"))
        words = range(next_word, max(next_word, last_word))
        next_word = words.stop
        word_of_token = np.full(window.length + NUM_SPECIALS, IGNORED, dtype=np.int32)
        shift = 1 - window.start
        word_of_token[best.start + shift : best.stop + shift] = of_token[best]
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
    """The label that each token of a window is to learn (T,), IGNORED where nothing is learned.

    `continuing` maps the label of a word to the label of its further tokens; None: only first tokens are learned.
    """
    result = np.full(len(window.tokens), IGNORED, dtype=np.int16)
    is_learned = window.word_of_token != IGNORED
    if continuing is None:
        is_learned &= window.is_first
    learned = np.asarray(labels, dtype=np.int64)[window.word_of_token[is_learned]]
    if continuing is not None:
        learned = np.where(window.is_first[is_learned], learned, continuing[learned])
    result[is_learned] = learned
    return result


class SplitOfWindows:
    """Writes the windows of the texts of a split."""

    def __init__(
        self, split: SplitWriter, layout: TaggingLayout, encoder: Encoder, *, continuing: NDArray[np.int64]
    ) -> None:
        """Write into a split; `continuing` maps the label of a word to the label of its further tokens."""
        self._split, self._layout = split, layout
        self._words, self._vocabulary = WordEncoder(encoder), encoder.vocabulary
        self._continuing = continuing if layout.label_pieces == "all" else None

    def write(
        self,
        examples: Sequence[Example],
        labels: Sequence[Sequence[int]] | None,
        records: Iterable[Mapping[str, Any]],
    ) -> None:
        """Write a split: its sentences, the labels of their words, and a further record of each sentence."""
        positions, learned = [np.empty(0, np.int32)], [np.empty(0, np.int16)]
        texts = list(_texts(examples, labels, self._layout.context))
        num_words = 0
        for start in terminal_bar(range(0, len(texts), _TEXTS_PER_CHUNK), self._split.name, unit=" chunks"):
            chunk = texts[start : start + _TEXTS_PER_CHUNK]
            for (words, tags), tokens in zip(
                chunk, self._words.tokens_of_all([words for words, _ in chunk]), strict=True
            ):
                num_tokens = sum(map(len, tokens)) + NUM_SPECIALS
                self._split.measure("texts", num_tokens, limit=self._layout.max_length, fate=DIVIDED)
                ids = {"bos_id": self._vocabulary.bos_id, "eos_id": self._vocabulary.eos_id}
                for window in windows_of(tokens, self._layout, **ids):
                    self._split.add([window.tokens], first_word=num_words + window.words.start)
                    positions.append(window.positions)
                    if tags is None:
                        learned.append(np.full(len(window.tokens), IGNORED, dtype=np.int16))
                    else:
                        learned.append(token_labels(window, tags, continuing=self._continuing))
                num_words += len(words)
        self._split.array("positions", np.concatenate(positions))
        self._split.array("token_labels", np.concatenate(learned))
        self._split.array("sentences", np.cumsum([0, *(len(each.texts) for each in examples)]))
        if labels is not None:
            self._split.array("tags", np.array([tag for tags in labels for tag in tags], dtype=np.int16))
        for each, more in zip(examples, records, strict=True):
            self._split.record({"words": each.texts, **more})


def _texts(
    examples: Sequence[Example], labels: Sequence[Sequence[int]] | None, context: str
) -> Iterator[tuple[list[str], list[int] | None]]:
    """Words and labels of each text that the model reads at once: a sentence, or all sentences of a document.

    Raises:
        ValueError: if documents are wanted and the file does not have them.
    """
    numbers = range(len(examples))
    groups = [[number] for number in numbers]
    if context == "document":
        if (lost := next((each for each in examples if not each.group), None)) is not None:
            raise ValueError(
                f"{lost.place_of_word(0)}: --context document needs -DOCSTART- lines, or the field document in JSON "
                "Lines. Add them, or leave the option out."
            )
        groups = [list(group) for _, group in groupby(numbers, key=lambda number: examples[number].group)]
    for group in groups:
        words = [word for number in group for word in examples[number].texts]
        yield words, None if labels is None else [label for number in group for label in labels[number]]
