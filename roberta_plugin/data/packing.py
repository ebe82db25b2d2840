"""A padded batch -> one row of sequences end to end, for models that keep sequences apart by their edges.

Stage of the flow in `roberta_plugin/data/__init__.py`, in place of padding (--pack-sequences). What the blocks do not
fill of the row is cut into sequences of padding, none longer than a block may be: attention kernels are given that
length and leave what lies beyond it uninitialized. Sizes are rounded up, so that many batches have one shape.

Shapes: B blocks, T positions of a padded block, Q room for its predicted ones; N positions of the row, M room for its
predicted ones, S sequences: the blocks, the padding at the end, and empty ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.dynamic_masking import Masked

PREDICTED_MULTIPLE = 128
SEQUENCES_MULTIPLE = 32


class PackedRow(NamedTuple):
    """A masked batch in one row."""

    tokens: NDArray[np.int64]
    """What the model sees (1, N)."""
    targets: NDArray[np.int64]
    """The original id where a token is predicted, pad elsewhere (1, N)."""
    positions: NDArray[np.int64]
    """Where in its block each token is, from 0 (1, N)."""
    edges: NDArray[np.int32]
    """Sequence s is at edges[s] to edges[s + 1] (S + 1,)."""
    predicted: NDArray[np.int64]
    """The predicted positions of the row (1, M), then 0."""
    answers: NDArray[np.int64]
    """The original ids at `predicted` (1, M), then pad."""
    predicted_edges: NDArray[np.int32]
    """Which of `predicted` belong to sequence s (S + 1,); the room that is left belongs to the last block."""


def pack(masked: Masked, lengths: NDArray[np.int64], *, pad_id: int, multiple: int, longest: int) -> PackedRow:
    """Lay the blocks of a masked batch end to end.

    Args:
        masked: the padded batch.
        lengths: tokens of each block (B,), <s> included.
        pad_id: id of <pad>.
        multiple: N is a multiple of this.
        longest: no sequence has more positions.
    """
    num_tokens = int(lengths.sum())
    num_positions = -(-num_tokens // multiple) * multiple
    is_token = np.arange(masked.tokens.shape[1]) < lengths[:, None]  # (B, T)
    places = np.broadcast_to(np.arange(masked.tokens.shape[1]), is_token.shape)

    is_answer = masked.answers != pad_id  # (B, Q)
    starts = np.cumsum(lengths) - lengths
    counts = is_answer.sum(axis=1)
    room = num_predicted = int(counts.sum())
    padding = padding_edges(num_tokens, num_positions, longest=longest)
    num_sequences = len(lengths) + len(padding)
    if multiple > 1:
        room = -(-num_predicted // PREDICTED_MULTIPLE) * PREDICTED_MULTIPLE
        num_sequences = -(-num_sequences // SEQUENCES_MULTIPLE) * SEQUENCES_MULTIPLE
    edges = np.full(num_sequences + 1, num_positions, dtype=np.int32)
    edges[: len(lengths)] = starts
    edges[len(lengths) : len(lengths) + len(padding)] = padding
    predicted_edges = np.full(num_sequences + 1, room, dtype=np.int32)
    predicted_edges[: len(lengths)] = np.cumsum(counts) - counts
    return PackedRow(
        tokens=_row(masked.tokens[is_token], num_positions, fill=pad_id),
        targets=_row(masked.targets[is_token], num_positions, fill=pad_id),
        positions=_row(places[is_token], num_positions, fill=0),
        edges=edges,
        predicted=_row((masked.positions + starts[:, None])[is_answer], room, fill=0),
        answers=_row(masked.answers[is_answer], room, fill=pad_id),
        predicted_edges=predicted_edges,
    )


def padding_edges(num_tokens: int, num_positions: int, *, longest: int) -> NDArray[np.int64]:
    """Where the sequences of padding begin, of at most `longest` positions, that fill a row from `num_tokens` on."""
    return np.arange(num_tokens, num_positions, longest)


def _row(values: NDArray[np.int64], width: int, *, fill: int) -> NDArray[np.int64]:
    row = np.full((1, width), fill, dtype=np.int64)
    row[0, : len(values)] = values
    return row
