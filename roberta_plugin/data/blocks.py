"""Items of a .bin file -> blocks: ranges of at most `block_length` consecutive tokens.

Stage of the flow in `roberta_plugin/data/__init__.py`. The break modes and their results equal fairseq's
TokenBlockDataset; in the paper's words (section 4.2), `complete` is FULL-SENTENCES and `complete_doc` DOC-SENTENCES.
Items longer than a block are cut into pieces of `block_length` and a remainder, which are then packed like items;
fairseq drops such items from training. In `eos` no block is </s> alone, as there would be nothing to predict: blank
lines, which TokenBlockDataset keeps, have no block. A block's length counts the tokens of the file, without the <s> put
before it.

Example: items of 3, 2, 1 (a blank line), 2 and 7 tokens in blocks of at most 5 tokens, as [first token, length]:

    none           [0, 5]  [5, 5]  [10, 5]                    every 5 tokens
    eos            [0, 3]  [3, 2]  [6, 2]  [8, 5]  [13, 2]    one item each, but blank lines; the last item is cut
    complete       [0, 5]  [5, 3]  [8, 5]  [13, 2]            as many whole items as fit
    complete_doc   [0, 5]  [6, 2]  [8, 5]  [13, 2]            as complete, but no block contains the blank line

Shapes: N blocks, I items.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.array_files import take_mapped
from roberta_plugin.data.rounding import ceil_div

BreakMode = Literal["none", "complete", "complete_doc", "eos"]
SEPARATOR = 1  # tokens of a blank line, which is </s> alone
_ITEMS_AT_ONCE = 2**19  # sizes in memory at a time


class Blocks(Protocol):
    """The positions of the blocks in one .bin file.

    Attributes:
        num_split: items longer than a block, which were cut.
        num_separators: blank lines, which separate documents and belong to no block (complete_doc and eos only).
        longest: tokens of the longest block.
    """

    num_split: int
    num_separators: int
    longest: int

    def __len__(self) -> int:
        """Number of blocks."""
        ...

    def bounds(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First token (n,) and number of tokens (n,) of the blocks `indices` (n,)."""
        ...

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of tokens (n,) of the blocks `indices` (n,)."""
        ...

    @property
    def are_equal_in_length(self) -> bool:
        """True if all blocks but the last have the same length, so sorting by length would save no padding."""
        ...


class EqualBlocks:
    """Break mode `none`: a block every `block_length` tokens, computed on demand, at the same cost for any corpus."""

    num_split = 0
    num_separators = 0
    are_equal_in_length = True

    def __init__(self, num_tokens: int, *, block_length: int) -> None:
        self.num_tokens = num_tokens
        self.block_length = block_length
        self.longest = min(num_tokens, block_length)

    def __len__(self) -> int:
        return int(ceil_div(self.num_tokens, self.block_length))

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of tokens (n,) of the blocks `indices` (n,)."""
        return self.bounds(indices)[1]

    def bounds(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First token (n,) and number of tokens (n,) of the blocks `indices` (n,)."""
        starts = indices * self.block_length
        return starts, np.minimum(self.num_tokens - starts, self.block_length)


class UnequalBlocks:
    """All other break modes: a start and a length for each block, in memory or in a mapped file."""

    are_equal_in_length = False

    def __init__(
        self,
        starts: NDArray[np.int64],
        lengths: NDArray[np.integer[Any]],
        *,
        num_split: int,
        num_separators: int,
        longest: int,
    ) -> None:
        self._starts = starts
        self._lengths = lengths
        self.num_split = num_split
        self.num_separators = num_separators
        self.longest = longest

    def __len__(self) -> int:
        return len(self._starts)

    def bounds(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First token (n,) and number of tokens (n,) of the blocks `indices` (n,)."""
        return take_mapped(self._starts, indices), self.lengths(indices)

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of tokens (n,) of the blocks `indices` (n,)."""
        return take_mapped(self._lengths, indices).astype(np.int64)


def make_blocks(sizes: NDArray[np.int32], *, block_length: int, break_mode: BreakMode) -> Blocks:
    """Cut the items of a small corpus into blocks; `block_tables.open_blocks` does it for a corpus of any size.

    Args:
        sizes: tokens of each item (I,).
        block_length: maximum number of tokens in a block.
        break_mode: `none`: a block every block_length tokens; `complete`: as many whole items as fit; `complete_doc`:
            the same, but never across a blank line; `eos`: one item per block, blank lines left out. See the example
            above.

    Raises:
        ValueError: if `complete_doc` is requested and there is no blank line.
    """
    if break_mode == "none":
        return EqualBlocks(int(sizes.sum(dtype=np.int64)), block_length=block_length)
    counts = count_items(sizes, block_length=block_length, break_mode=break_mode)
    parts = list(cut_items(sizes, block_length=block_length, break_mode=break_mode))
    starts = np.concatenate([np.empty(0, np.int64), *(part.starts for part in parts)])
    lengths = np.concatenate([np.empty(0, np.int32), *(part.lengths for part in parts)])
    longest = int(lengths.max(initial=0))
    return UnequalBlocks(
        starts, lengths, num_split=counts.num_split, num_separators=counts.num_separators, longest=longest
    )


class Sizes(Protocol):
    """Tokens of each item (I,): an array, or an `ArrayOnDisk`."""

    def __len__(self) -> int: ...

    def __getitem__(self, window: slice, /) -> NDArray[np.int32]: ...


class ItemCounts(NamedTuple):
    """Number of items longer than a block, and of blank lines (`complete_doc` and `eos` only)."""

    num_split: int
    num_separators: int


def count_items(sizes: Sizes, *, block_length: int, break_mode: BreakMode) -> ItemCounts:
    """Count items in windows; refuse `complete_doc` if there is no blank line (see `make_blocks`)."""
    num_split = num_separators = 0
    for _, window in windows(sizes):
        num_split += int((window > block_length).sum())
        if break_mode in ("complete_doc", "eos"):
            num_separators += int((window == SEPARATOR).sum())
    if break_mode == "complete_doc" and not num_separators:
        raise ValueError(
            "--sample-break-mode complete_doc needs documents separated by blank lines, but the data have none: "
            "binarize text with a blank line after each document (and keep them: fairseq's BPE "
            "encoder needs --keep-empty), or use --sample-break-mode complete. (With --input-format, the two are "
            "doc-sentences and full-sentences.)"
        )
    return ItemCounts(num_split, num_separators)


def windows(sizes: Sizes) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """Windows over the sizes: the number of the first item, and the sizes (n,)."""
    for start in range(0, len(sizes), _ITEMS_AT_ONCE):
        yield start, sizes[start : start + _ITEMS_AT_ONCE]


def cut_items(sizes: Sizes, *, block_length: int, break_mode: BreakMode) -> Iterator[Part]:
    """The blocks of every break mode but `none`, in parts, from left to right; arguments as in `make_blocks`."""
    if break_mode == "eos":
        return _one_item_a_block(sizes, block_length)
    return _packed_items(sizes, block_length, SEPARATOR if break_mode == "complete_doc" else None)


class Part(NamedTuple):
    """Some consecutive blocks: starts (n,) and lengths (n,)."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int32]


def _cut(sizes: NDArray[np.int64], block_length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sizes (I,) -> sizes of the pieces (P,) and the item of each piece (P,); an item that fits is one piece.

    Example: sizes 3, 7 and blocks of 5 -> pieces 3, 5, 2 of the items 0, 1, 1.
    """
    if sizes.max() <= block_length:  # nearly always
        return sizes, np.arange(len(sizes))
    num_pieces = np.maximum(ceil_div(sizes, block_length), 1)
    items = np.repeat(np.arange(len(sizes)), num_pieces)
    pieces = np.full(len(items), block_length, dtype=np.int64)
    pieces[np.cumsum(num_pieces) - 1] = sizes - (num_pieces - 1) * block_length  # the last piece gets the remainder
    return pieces, items


def count_item_blocks(sizes: NDArray[np.int32], block_length: int) -> NDArray[np.int64]:
    """Blocks of each item (I,) in `eos`: none for a blank line, and none for a remainder that is </s> alone."""
    counts: NDArray[np.int64] = ceil_div(np.maximum(sizes.astype(np.int64) - SEPARATOR, 0), block_length)
    return counts


def _one_item_a_block(sizes: Sizes, block_length: int) -> Iterator[Part]:
    position = 0
    for _, window in windows(sizes):
        num_blocks = count_item_blocks(window, block_length)
        ends = position + np.cumsum(window, dtype=np.int64)
        items = np.repeat(np.arange(len(window)), num_blocks)
        pieces = np.arange(len(items)) - np.repeat(np.cumsum(num_blocks) - num_blocks, num_blocks)
        starts = (ends - window)[items] + pieces * block_length
        yield Part(starts, np.minimum(ends[items] - starts, block_length).astype(np.int32))
        position = int(ends[-1])


def _packed_items(sizes: Sizes, block_length: int, separator: int | None) -> Iterator[Part]:
    """Fill blocks with whole pieces from left to right, a window of items at a time.

    The start of a block determines the start of the next one. One binary search computes this pointer for all pieces
    of a window; Python then only follows the pointers, one step per block.
    """
    item = 0  # first item of the window
    cut_off = 0  # tokens of this item that belong to earlier blocks
    position = 0  # first token of the window in the file
    window = _ITEMS_AT_ONCE
    while item < len(sizes):
        is_last_window = item + window >= len(sizes)
        items_left = sizes[item : item + window].astype(np.int64)
        is_separator = items_left == separator if separator is not None else np.zeros(len(items_left), dtype=bool)
        items_left[0] -= cut_off
        pieces, item_of_piece = _cut(items_left, block_length)
        firsts, ends_in_pieces, stop = _follow(pieces, is_separator[item_of_piece], block_length, is_last_window)
        offsets = np.concatenate([[0], np.cumsum(pieces)])
        if len(firsts):
            starts = offsets[firsts]
            yield Part(position + starts, (offsets[ends_in_pieces] - starts).astype(np.int32))
        if stop == 0 and not is_last_window:  # one block fills the window: possible only with items of no tokens
            window *= 2
            continue
        if stop == len(pieces):
            item, cut_off = item + len(items_left), 0
        else:
            first_piece = int(np.searchsorted(item_of_piece, item_of_piece[stop]))
            taken = int(offsets[stop] - offsets[first_piece])
            cut_off = taken + (cut_off if item_of_piece[stop] == 0 else 0)
            item += int(item_of_piece[stop])
        position += int(offsets[stop])


def _follow(
    pieces: NDArray[np.int64], is_separator: NDArray[np.bool_], block_length: int, is_last_window: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Blocks of one window: first piece of each (n,), the piece after its last (n,), and the piece to resume with.

    A block that reaches the end of the window is left to the next window, unless this is the last.
    """
    num_pieces = len(pieces)
    ends = np.cumsum(pieces)
    ends_in_pieces = np.searchsorted(ends, ends - pieces + block_length, side="right")
    numbers = np.arange(num_pieces + 1)
    resumes = numbers
    if is_separator.any():
        # For each piece, scanning from the right: the next separator, and the next piece that is not one.
        numbers, resumes = numbers[:-1], numbers.copy()
        next_separator = np.minimum.accumulate(np.where(is_separator, numbers, num_pieces)[::-1])[::-1]
        ends_in_pieces = np.minimum(ends_in_pieces, next_separator)
        resumes[:-1] = np.minimum.accumulate(np.where(is_separator, num_pieces, numbers)[::-1])[::-1]
    # Reading single elements is faster from a memoryview than from an array, and only a few are needed.
    end_of, resume_at = ends_in_pieces.data, resumes.data
    firsts, block_ends = [], []
    piece = resume_at[0]
    while piece < num_pieces:
        end = end_of[piece]
        if end == num_pieces and not is_last_window:
            break
        firsts.append(piece)
        block_ends.append(end)
        piece = resume_at[end]
    return np.array(firsts, dtype=np.int64), np.array(block_ends, dtype=np.int64), piece
