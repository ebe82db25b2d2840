"""Pairs of texts -> padded arrays of ids `<s> A </s></s> B </s>` and their segments.

Stage of the flow in `roberta_plugin/data/__init__.py`, beside `batches`.

Example: A = 11 12 13 (two lines, of which 13 is cut off) and B = 14; <s> 0, pad 1, </s> 2, 8 positions:

    tokens in the .bin   11 12 2 13 2  and  14 2
    ids                  0 11 12 2 2 14 2 1
    segments             0  0  0 0 1  1 1 0      `<s> A </s>` is segment 0, as BERT's `[CLS] A [SEP]`

Shapes: B pairs, T positions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import MmapTokens, bad_id_error
from roberta_plugin.data.pairs import NUM_SPECIALS, Pairs


class PairBatch(NamedTuple):
    """Pairs, padded."""

    tokens: NDArray[np.int64]
    """Ids (B, T)."""
    segments: NDArray[np.int64]
    """0 for <s>, A and its </s>, 1 for the second </s>, B and its </s>, 0 for padding (B, T)."""
    lengths: NDArray[np.int64]
    """Tokens of each pair, special ones included (B,)."""
    follows: NDArray[np.bool_]
    """Whether B follows A (B,)."""
    begins: NDArray[np.bool_] | None = None
    """Where a sentence begins (B, T); only for the masking of whole words, as the first word of a line has no space."""


def empty_batch(num_pairs: int, *, width: int, bos_id: int, pad_id: int) -> PairBatch:
    """A batch to be filled, (B, T) = (num_pairs, width)."""
    tokens = np.full((num_pairs, width), pad_id, dtype=np.int64)
    tokens[:, 0] = bos_id
    lengths = np.zeros(num_pairs, dtype=np.int64)
    return PairBatch(tokens, np.zeros_like(tokens), lengths, np.zeros(num_pairs, dtype=np.bool_))


def fill_pairs(
    batch: PairBatch, source: MmapTokens, pairs: Pairs, *, rows: NDArray[np.int64], eos_id: int, vocab_size: int
) -> None:
    """Write some pairs (n,) of one file into `rows` (n,) of a batch.

    Raises:
        ValueError: if an id is not in the vocabulary, or </s> is not at the end of each line and only there.
    """
    text, begins = _texts(source, pairs, eos_id=eos_id, vocab_size=vocab_size)
    a, b = pairs.lengths  # 2 x (n,)
    width = batch.tokens.shape[1]
    lengths = pairs.lengths.T.ravel()  # A, B, A, B, ... (2n,)
    first = np.stack([rows * width + 1, rows * width + 3 + a], axis=1).ravel()  # position of each text
    places = np.arange(len(text)) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
    batch.tokens.ravel()[places] = text
    if batch.begins is not None:
        batch.begins.ravel()[places] = begins
    for column in (a + 1, a + 2, a + b + 3):
        batch.tokens[rows, column] = eos_id
    columns = np.arange(width)
    batch.segments[rows] = (columns >= (a + 2)[:, None]) & (columns <= (a + b + 3)[:, None])  # (n, T)
    batch.lengths[rows] = pairs.lengths.sum(axis=0) + NUM_SPECIALS
    batch.follows[rows] = pairs.follows


def _texts(source: MmapTokens, pairs: Pairs, *, eos_id: int, vocab_size: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The remaining texts of all pairs, end to end, A before B, and the beginnings of sentences in them."""
    starts, spans, contents = (values.T.ravel() for values in (pairs.starts, pairs.spans, pairs.contents))
    tokens = source.tokens
    ids = np.concatenate(
        [tokens[start : start + span] for start, span in zip(starts.tolist(), spans.tolist(), strict=True)]
    )
    if len(ids) and (ids.max() >= vocab_size or ids.min() < 0):
        for start, span in zip(starts.tolist(), spans.tolist(), strict=True):
            part = tokens[start : start + span]
            is_bad = (part >= vocab_size) | (part < 0)
            if is_bad.any():
                raise bad_id_error(source, start + int(np.argmax(is_bad)), vocab_size)
    is_text = ids != eos_id
    text: NDArray[Any] = ids[is_text]
    begins: NDArray[np.bool_] = np.concatenate([[True], ~is_text[:-1]])[is_text]
    if len(text) != int(contents.sum()):
        _refuse_lines(source, starts, spans, eos_id)
    fronts, lengths = pairs.fronts.T.ravel(), pairs.lengths.T.ravel()
    if len(text) > int(lengths.sum()):
        place = np.arange(len(text)) - np.repeat(np.cumsum(contents) - contents + fronts, contents)
        is_kept = (place >= 0) & (place < np.repeat(lengths, contents))
        text, begins = text[is_kept], begins[is_kept]
    return text, begins


def _refuse_lines(source: MmapTokens, starts: NDArray[np.int64], spans: NDArray[np.int64], eos_id: int) -> None:
    for start, stop in zip(starts.tolist(), (starts + spans).tolist(), strict=True):
        while start < stop:
            item = source.item_at(start)
            line = source[item]
            if line[-1] != eos_id or int((line == eos_id).sum()) != 1:
                raise ValueError(
                    f"{source.prefix}.bin, item {item} (line {item + 1} of the text): pairs need lines that end with "
                    f"</s> and have no other, and this one holds {int((line == eos_id).sum())} of them. Binarize the "
                    "text again, without </s> in it."
                )
            start += len(line)
