"""Ranges of tokens -> one padded array of ids; a padded, masked batch -> one row of sequences end to end.

Stage of the flow in `roberta_plugin/data/__init__.py`; a packed row is for attention kernels with `cu_seqlens`
(--pack-sequences).

Example of padding: blocks of 3 and 2 tokens, <s> 0, pad 1, a multiple of 4:

    tokens  ... 11 12 2 13 2 ...      ->      0 11 12  2
    starts  [s, s + 3], lengths [3, 2]        0 13  2  1

In a packed row, positions after the last block are cut into sequences of padding no longer than `max_seqlen`:
attention kernels leave positions beyond that length uninitialized. Sizes are rounded up, so that many batches have the
same shape.

Example of packing: two blocks of 3 and 2 tokens (_ is pad), `multiple` 4, `max_seqlen` 3, where 8 and 5 are to be
predicted:

    padded                packed
    tokens  0 M 9         tokens        0 M 9 0 M _ _ _     positions   0 1 2 0 1 0 0 0
            0 M _         cu_seqlens    0 3 5 8             (two blocks, one sequence of padding)
    labels  8             predicted     1 4                 labels      8 5
            5             cu_seqlens_q  0 1 2 2             (one predicted position per block)

With `multiple` above 1, `predicted` and `cu_seqlens` have more entries than shown: they are rounded up as well
(`Rounding`).

Shapes: B blocks, T positions of a padded block (<s>, the tokens of the longest, and padding up to a multiple), Q room
for its predicted ones; N positions of the row, M room for its predicted ones, S sequences: the blocks, the padding at
the end, and empty ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.dynamic_masking import MaskedBatch
from roberta_plugin.data.rounding import round_up

SIMILAR = 0.9  # of the longest sequence of a batch; shorter ones begin another batch


def pad_width(longest: int, *, multiple: int) -> int:
    """T of a batch whose longest block has `longest` tokens, <s> not counted; 3 tokens and multiple 8: 8."""
    return int(round_up(longest + 1, multiple))


def fill_rows(
    batch: NDArray[np.int64],
    tokens: NDArray[np.integer[Any]],
    *,
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Copy the ranges `starts`, `lengths` (n,) of `tokens` into `rows` (n,) of `batch` (B, T), from column 1 on."""
    for row, start, length in zip(rows.tolist(), starts.tolist(), lengths.tolist(), strict=True):
        batch[row, 1 : 1 + length] = tokens[start : start + length]


def cut_by_length(
    lengths: Sequence[int], *, max_tokens: int, enough: int, max_sequences: int | None = None
) -> Iterator[list[int]]:
    """Numbers of the sequences of each batch: the longest first, at most `max_tokens` positions with padding, and at
    most `max_sequences`.

    A batch that has `enough` positions takes no sequence that is shorter than SIMILAR of its longest. A sequence that
    is longer than `max_tokens` gets its own batch. The longest come first, so that too little memory shows at once.

    Example:
        list(cut_by_length([3, 9, 2, 8], max_tokens=18, enough=18))  ->  [[1, 3], [0, 2]]
        list(cut_by_length([3, 9, 2, 8], max_tokens=18, enough=9))  ->  [[1], [3, 0], [2]]
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    batch: list[int] = []
    for number in order:
        longest = lengths[batch[0]] if batch else 0
        is_full = (len(batch) + 1) * longest > max_tokens or len(batch) == max_sequences
        if batch and (is_full or (len(batch) * longest >= enough and lengths[number] < SIMILAR * longest)):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


PREDICTED_MULTIPLE = 128  # at least
SEQUENCES_MULTIPLE = 32


class Rounding(NamedTuple):
    """Multiples to which the sizes of packed rows are rounded up, so that few batches differ in shape.

    With the length of a whole batch as the multiple, nearly all batches have one shape: the predicted positions have
    room for what masks and the ends of texts change, at most 1/64 of the row.
    """

    predicted: int
    sequences: int

    @classmethod
    def of(cls, multiple: int) -> Rounding:
        """Those for rows of a multiple of so many positions.

        Example: 8 -> 128 predicted positions, 32 sequences; 16,384 -> 256 and 64.
        """
        if multiple == 1:
            return cls(1, 1)
        predicted, sequences = max(1, multiple // 64), max(1, multiple // 256)
        return cls(int(round_up(predicted, PREDICTED_MULTIPLE)), int(round_up(sequences, SEQUENCES_MULTIPLE)))


class PackedRow(NamedTuple):
    """A masked batch in one row."""

    tokens: NDArray[np.int64]
    """The model's input (1, N)."""
    targets: NDArray[np.int64]
    """The original id where a token is predicted, pad elsewhere (1, N)."""
    positions: NDArray[np.int64]
    """The position of each token in its block, from 0 (1, N)."""
    cu_seqlens: NDArray[np.int32]
    """Sequence s has the positions cu_seqlens[s] to cu_seqlens[s + 1] (S + 1,)."""
    predicted: NDArray[np.int64]
    """The predicted positions of the row (1, M), then 0."""
    labels: NDArray[np.int64]
    """The original ids at `predicted` (1, M), then pad."""
    cu_seqlens_q: NDArray[np.int32]
    """Sequence s has the entries cu_seqlens_q[s] to cu_seqlens_q[s + 1] of `predicted` (S + 1,); the rest belongs to
    the last block."""


def pack(
    masked: MaskedBatch,
    lengths: NDArray[np.int64],
    *,
    pad_id: int,
    multiple: int,
    max_seqlen: int,
    is_kept: NDArray[np.bool_] | None = None,
) -> PackedRow:
    """Lay the blocks of a masked batch end to end.

    Args:
        masked: the padded batch.
        lengths: tokens of each block (B,), <s> included.
        pad_id: id of <pad>.
        multiple: N is a multiple of this.
        max_seqlen: no sequence has more positions.
        is_kept: entries of `predicted` to keep although they have no label (Q,), such as <s>.
    """
    num_tokens = int(lengths.sum())
    num_positions = round_up(num_tokens, multiple)
    is_token = np.arange(masked.tokens.shape[1]) < lengths[:, None]  # (B, T)
    positions = np.broadcast_to(np.arange(masked.tokens.shape[1]), is_token.shape)

    is_predicted = masked.labels != pad_id  # (B, Q)
    if is_kept is not None:
        is_predicted |= is_kept
    starts = np.cumsum(lengths) - lengths
    counts = is_predicted.sum(axis=1)
    num_predicted = int(counts.sum())
    padding = padding_starts(num_tokens, num_positions, max_seqlen=max_seqlen)
    num_sequences = len(lengths) + len(padding)
    rounding = Rounding.of(multiple)
    room = int(round_up(num_predicted, rounding.predicted))
    num_sequences = int(round_up(num_sequences, rounding.sequences))
    cu_seqlens = np.full(num_sequences + 1, num_positions, dtype=np.int32)
    cu_seqlens[: len(lengths)] = starts
    cu_seqlens[len(lengths) : len(lengths) + len(padding)] = padding
    cu_seqlens_q = np.full(num_sequences + 1, room, dtype=np.int32)
    cu_seqlens_q[: len(lengths)] = np.cumsum(counts) - counts
    return PackedRow(
        tokens=_row(masked.tokens[is_token], num_positions, fill=pad_id),
        targets=_row(masked.targets[is_token], num_positions, fill=pad_id),
        positions=_row(positions[is_token], num_positions, fill=0),
        cu_seqlens=cu_seqlens,
        predicted=_row((masked.positions + starts[:, None])[is_predicted], room, fill=0),
        labels=_row(masked.labels[is_predicted], room, fill=pad_id),
        cu_seqlens_q=cu_seqlens_q,
    )


def padding_starts(num_tokens: int, num_positions: int, *, max_seqlen: int) -> NDArray[np.int64]:
    """Starts of the sequences of padding, of at most `max_seqlen` positions, that fill a row from `num_tokens` on.

    Example: padding_starts(5, 12, max_seqlen=3) is [5, 8, 11].
    """
    return np.arange(num_tokens, num_positions, max_seqlen)


def _row(values: NDArray[np.int64], width: int, *, fill: int) -> NDArray[np.int64]:
    row = np.full((1, width), fill, dtype=np.int64)
    row[0, : len(values)] = values
    return row
