"""Ranges of tokens -> one padded array of ids.

Stage of the flow in `roberta_plugin/data/__init__.py`.

Example: blocks of 3 and 2 tokens, <s> 0, pad 1, a multiple of 4:

    tokens  ... 11 12 2 13 2 ...      ->      0 11 12  2
    starts  [s, s + 3], lengths [3, 2]        0 13  2  1

Shapes: B blocks, T positions: <s>, the tokens of the longest block, and padding up to a multiple.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import MmapTokens, bad_id_error
from roberta_plugin.data.rounding import round_up


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


def check_batch(
    batch: NDArray[np.int64],
    *,
    vocab_size: int,
    source: MmapTokens,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Refuse ids outside the vocabulary in `batch`, which holds the ranges `starts`, `lengths` of `source`.

    Raises:
        ValueError: naming the file, the line, the id and the remedy.
    """
    if batch.size == 0 or (batch.max() < vocab_size and batch.min() >= 0):
        return
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        part = source.tokens[start : start + length]
        is_bad = (part >= vocab_size) | (part < 0)
        if is_bad.any():
            raise bad_id_error(source, start + int(np.argmax(is_bad)), vocab_size)
