"""The sentences of a document -> model inputs `<s> one </s> <s> two </s> ...`, in windows if they are too long.

A window holds as many whole sentences as fit. The next window starts at the first sentence that begins at least
`doc_stride` tokens later, but skips no sentence. The last window ends with the document. A sentence can be in several
windows. It is scored once, in its *best* window, which gives it the most context on its shorter side: the score of a
window is the smaller number of tokens before and after the sentence in the window plus a hundredth of the window's
length. Ties go to the earlier window (BERT's rule for the tokens of a passage, applied to sentences).

Example: six sentences of 4 tokens, room for 16, stride 8. Each belongs to the window marked with *:

    sentence          0  1  2  3  4  5
    window 0          *  *  *  .
    window 1                .  *  *  *

Sentence 2 has 4 tokens of context on its shorter side in window 0, and none in window 1.

A model reads the features of the <s> of each sentence. In a padded batch, its last layer computes Q positions of each
row; in a packed batch, V positions of the only row. Both have the form of `predicted` of `SentenceEncoder.forward`, and
`index` maps each sentence to its position among them. Example: two windows in rows of 9 positions, three sentences, the
last one in row 0, so Q is 2:

    row       0 1 0        positions  [[0, 5], [3, 0]]       index  [0, 2, 1]
    position  0 3 5

Shapes: U sentences of a document, W windows, T tokens of a window; of a batch, V sentences, S windows, Q most sentences
of a window, B documents, M most sentences of a document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.sentences import split_line
from roberta_plugin.finetuning.layouts.windows import best_ranges
from roberta_plugin.finetuning.records import one_line

Integers = NDArray[np.int64]

SENTENCE_LENGTH = 200  # BertSum's most tokens of a sentence
NUM_SPECIALS = 2  # <s> and </s> of a sentence


@dataclass(frozen=True, kw_only=True)
class SummaryLayout:
    """How windows are cut, in tokens; settings of the prepared folder."""

    max_length: int
    sentence_length: int
    doc_stride: int

    @classmethod
    def with_defaults(
        cls, max_length: int, *, sentence_length: int | None = None, doc_stride: int | None = None
    ) -> SummaryLayout:
        """The layout of windows of `max_length` tokens; None: the usual value.

        Raises:
            ValueError: if a sentence may be longer than `max_length` permits.
        """
        most = max_length - NUM_SPECIALS
        if most < 1 or (sentence_length or 1) > most:
            raise ValueError(
                f"--max-length {max_length} leaves {max(0, most)} tokens for a sentence, besides its <s> and </s>: "
                "raise it, or lower --sentence-length."
            )
        return cls(
            max_length=max_length,
            sentence_length=sentence_length or min(SENTENCE_LENGTH, most),
            doc_stride=doc_stride or max(1, max_length // 2),
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
    return [Window(*span, *best) for span, best in zip(spans, best_ranges(bounds, spans), strict=True)]


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
    windows = Windows([], np.empty(len(pieces), np.int32), np.empty(len(pieces), np.int32))
    for number, part in enumerate(cut(list(map(len, pieces)), room=layout.max_length, stride=layout.doc_stride)):
        windows.sequences.append(np.concatenate(pieces[part.first : part.stop]))
        scored = slice(part.best_first, part.best_stop)
        windows.window[scored] = number
        windows.position[scored] = starts[:-1][scored] - starts[part.first]
    return windows, num_cut


def padded_layout(row: Integers, position: Integers, *, num_rows: int) -> dict[str, Any]:
    """{"positions" (S, Q), "index" (V,)} of sentences in some rows (V,) at some positions (V,)."""
    order, counts = _by_row(row, position, num_rows)
    room = max(1, int(counts.max()))
    slot = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    positions = np.zeros((num_rows, room), dtype=np.int64)
    positions[row[order], slot] = position[order]
    index = np.empty(len(row), dtype=np.int64)
    index[order] = row[order] * room + slot
    return {"positions": positions, "index": index}


def packed_layout(row: Integers, position: Integers, *, lengths: Integers, num_sequences: int) -> dict[str, Any]:
    """{"positions" (1, V), "index" (V,)} of sentences in windows of these lengths (S,), end to end in one row.

    Also {"cu_seqlens" (num_sequences + 1,), "max_seqlen"}, the bounds of each sequence among the positions. Sequences
    that are padding have no positions.
    """
    order, counts = _by_row(row, position, len(lengths))
    starts = np.cumsum(lengths) - lengths
    index = np.empty(len(row), dtype=np.int64)
    index[order] = np.arange(len(row))
    ends = np.cumsum(counts)
    cu_seqlens = np.concatenate([[0], ends, np.full(num_sequences - len(lengths), ends[-1])]).astype(np.int32)
    return {
        "positions": (starts[row] + position)[order][None],
        "index": index,
        "cu_seqlens": cu_seqlens,
        "max_seqlen": int(counts.max()),
    }


def by_document(counts: Integers) -> dict[str, Any]:
    """For documents with these sentence counts (B,): {"document" (V,), "place" (V,)} of each sentence, from 0 on.

    Also {"num_documents" B, "longest" M}, as numbers on the host.

    Example: counts [2, 3] -> document [0, 0, 1, 1, 1], place [0, 1, 0, 1, 2].
    """
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    document = np.repeat(np.arange(len(counts)), counts)
    return {"document": document, "place": place, "num_documents": len(counts), "longest": int(counts.max())}


def segments_of(tokens: Integers, *, bos_id: int, starts: Integers | None = None) -> Integers:
    """Segments 0 and 1 in turn, from sentence to sentence of a window: ids (S, T) -> (S, T).

    With `starts` (S,), the windows lie end to end in one row (1, T), and each begins with 0.

    Example: `<s> a </s> <s> b </s>` -> 0 0 0 1 1 1.
    """
    number = np.cumsum(tokens == bos_id, axis=1)  # 1 for the first sentence
    if starts is not None:
        before = number[0, starts] - 1  # sentences of the windows before
        number = number - np.repeat(before, np.diff([*starts.tolist(), tokens.shape[1]]))[None]
    segments: Integers = (number - 1) % 2
    return segments


def _by_row(row: Integers, position: Integers, num_rows: int) -> tuple[Integers, Integers]:
    """The order of the sentences by row and position (V,), and the sentences of each row (S,)."""
    return np.lexsort((position, row)), np.bincount(row, minlength=num_rows)


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, line by line.

    Example: "It rained. We stayed.\\n\\nWhy?" -> ["It rained.", "We stayed.", "Why?"].
    """
    return [sentence for line in text.splitlines() if line.strip() for sentence in split_line(one_line(line))]
