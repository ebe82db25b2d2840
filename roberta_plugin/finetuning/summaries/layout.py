"""Which sentences of a batch are scored, and where -> where the model reads the features of their <s>.

Padded, the model computes Q positions of each row in its last layer; packed, V positions of its one row. Both are in
the form of `predicted` of `SentenceEncoder.forward`, and `index` says which of them is which sentence.

Example: two windows in rows of 9 positions, three sentences, the third of them in the first row. Padded, Q is 2:

    row       0 1 0        positions  [[0, 5], [3, 0]]       index  [0, 2, 1]
    position  0 3 5

Shapes: V sentences of the batch, S windows, T positions, Q most sentences of a window, B documents, M most sentences of
a document.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


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
    """The same for windows of these lengths (S,) end to end in one row: {"positions" (1, V), "index" (V,)}.

    And {"cu_seqlens" (num_sequences + 1,), "max_seqlen"}: which of the positions belong to which sequence; those that
    are padding have none.
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

    And {"num_documents" B, "longest" M}, known on the host.

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
