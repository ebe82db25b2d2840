"""Ranges of tokens -> one padded array of ids.

Stage of the flow in `roberta_plugin/data/__init__.py`.

Shapes: B blocks, T positions: <s>, the tokens of the longest block, and padding up to a multiple.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import MmapTokens, bad_id_error


def pad_width(longest: int, *, multiple: int) -> int:
    """Positions of a batch whose longest block has `longest` tokens, <s> not counted."""
    return -(-(longest + 1) // multiple) * multiple


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


def check_batch(
    batch: NDArray[np.int64],
    *,
    vocab_size: int,
    source: MmapTokens,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Refuse ids of `batch` outside the vocabulary, if they are in the ranges `starts`, `lengths` of `source`.

    Raises:
        ValueError: naming the file, the line, the id and what to do.
    """
    if batch.size == 0 or (batch.max() < vocab_size and batch.min() >= 0):
        return
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        part = source.tokens[start : start + length]
        is_bad = (part >= vocab_size) | (part < 0)
        if is_bad.any():
            raise bad_id_error(source, start + int(np.argmax(is_bad)), vocab_size)
