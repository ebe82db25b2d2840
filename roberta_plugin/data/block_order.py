"""The order in which an epoch visits its blocks: a pure function of (seed, epoch).

Stage of the flow in `roberta_plugin/data/__init__.py`. The order does not depend on the batch size or on the number
of ranks: batches are cut from it one after the other, so that "the first n blocks of epoch e" is all that a
checkpoint has to remember, and a run may go on with other batches on another number of GPUs.

Several corpora: each is a stream of passes, a pass being one permutation of all its blocks. An epoch takes the next
`counts[i]` blocks of stream i, so that no block comes a second time before its whole corpus has been seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Blocks of similar length are laid side by side in groups of this many, within pools of this many groups: batches up
# to the size of a group have almost no padding, and the order stays random beyond it.
GROUP_SIZE = 64
GROUPS_IN_POOL = 256

_STREAM, _INTERLEAVING, _GROUPING = range(3)  # what a generator is for: part of its seed


class EpochOrder(NamedTuple):
    """Blocks in the order of their visit: global index (N,) and the pass of its corpus (N,), which is 1 at first."""

    indices: NDArray[np.int64]
    passes: NDArray[np.int64]


def epoch_order(
    num_blocks: Sequence[int],
    *,
    seed: int,
    epoch: int,
    counts: Sequence[int] | None = None,
    lengths: Callable[[NDArray[np.int64]], NDArray[np.int32]] | None = None,
) -> EpochOrder:
    """The blocks of `epoch` (1-based) in order.

    Args:
        num_blocks: blocks of each corpus; the global index of a block counts on from corpus to corpus.
        seed: seed of the run.
        epoch: which epoch.
        counts: blocks that an epoch takes from each corpus (default: all of each).
        lengths: tokens of the blocks with given global indices; None when all are equal, which saves the grouping.
    """
    counts = num_blocks if counts is None else counts
    offsets = np.concatenate([[0], np.cumsum(num_blocks)])
    indices = np.empty(sum(counts), dtype=np.int64)
    passes = np.empty(len(indices), dtype=np.int64)
    end = 0
    for corpus, (size, count) in enumerate(zip(num_blocks, counts, strict=True)):
        for number, part in _stream(size, seed=seed, corpus=corpus, start=(epoch - 1) * count, count=count):
            indices[end : end + len(part)] = part + offsets[corpus]
            passes[end : end + len(part)] = number
            end += len(part)
    assert end == len(indices)
    if len(num_blocks) > 1:
        mixed = np.random.default_rng((_INTERLEAVING, seed, epoch)).permutation(end)
        indices, passes = indices[mixed], passes[mixed]
    if lengths is not None:
        grouped = _group_by_length(lengths(indices), rng=np.random.default_rng((_GROUPING, seed, epoch)))
        indices, passes = indices[grouped], passes[grouped]
    return EpochOrder(indices, passes)


def _stream(size: int, *, seed: int, corpus: int, start: int, count: int) -> list[tuple[int, NDArray[np.int64]]]:
    """Elements start to start + count of one corpus's endless stream, as (pass from 1, block indices)."""
    parts = []
    while count > 0:
        number, position = divmod(start, size)
        permutation = np.random.default_rng((_STREAM, seed, corpus, number)).permutation(size)
        part = permutation[position : position + count]
        parts.append((number + 1, part))
        start += len(part)
        count -= len(part)
    return parts


def _group_by_length(lengths: NDArray[np.int32], *, rng: np.random.Generator) -> NDArray[np.int64]:
    """A rearrangement (N,) of positions: sorted by length within each pool, groups of a pool in random order."""
    pool = GROUP_SIZE * GROUPS_IN_POOL
    order = np.arange(len(lengths))
    whole = len(lengths) // pool * pool
    by_length = np.argsort(lengths[:whole].reshape(-1, pool), axis=1, kind="stable")  # (pools, pool)
    groups = by_length.reshape(-1, GROUPS_IN_POOL, GROUP_SIZE)
    shuffled = rng.permuted(np.broadcast_to(np.arange(GROUPS_IN_POOL), groups.shape[:2]), axis=1)
    in_pools = np.take_along_axis(groups, shuffled[..., None], axis=1).reshape(-1, pool)
    order[:whole] = (in_pools + np.arange(0, whole, pool)[:, None]).reshape(-1)

    # The last pool: fewer groups, and one of them is short. It comes last, wherever its lengths are: in between, it
    # would shift all batches after it across two groups.
    rest = np.argsort(lengths[whole:], kind="stable") + whole
    num_full, short = divmod(len(rest), GROUP_SIZE)
    start = int(rng.integers(num_full + 1)) * GROUP_SIZE
    full = np.delete(rest, slice(start, start + short)).reshape(num_full, GROUP_SIZE)
    order[whole:] = np.concatenate([rng.permutation(full).reshape(-1), rest[start : start + short]])
    return order


def cut_batches(
    lengths: NDArray[np.int32],
    *,
    max_tokens: int | None,
    max_sentences: int | None,
    required_batch_size_multiple: int = 1,
    padded: bool = True,
    multiple: int = 1,
) -> NDArray[np.int64]:
    """Cut an order into batches of consecutive blocks; return their bounds (batches + 1,).

    A batch has at most `max_sentences` blocks and at most `max_tokens` tokens, padding included: where it is `padded`,
    up to its longest block and a `multiple`; else, as one row, up to a `multiple`. One that is cut by max_tokens is
    shortened to a multiple of `required_batch_size_multiple` blocks where it has as many.

    Raises:
        ValueError: if neither limit is given, or one block alone exceeds `max_tokens`.
    """
    if max_tokens is None and max_sentences is None:
        raise ValueError("The batch size is missing: give --batch-size, --max-tokens or both.")
    num_blocks = len(lengths)
    given_tokens, longest_block = max_tokens, int(lengths.max(initial=0))
    if multiple > 1 and max_tokens is not None:
        if padded:
            lengths = (lengths + (multiple - 1)) // multiple * multiple
        else:
            max_tokens -= max_tokens % multiple
    longest = int(lengths.max(initial=0))
    if max_tokens is None or (max_sentences is not None and longest * max_sentences <= max_tokens):
        assert max_sentences is not None
        return np.minimum(np.arange(0, num_blocks + max_sentences, max_sentences), num_blocks)
    if longest > max_tokens:
        rounded = f", which --pad-to-multiple {multiple} rounds up" if longest_block <= (given_tokens or 0) else ""
        raise ValueError(
            f"--max-tokens ({given_tokens}) is smaller than the longest block ({longest_block} tokens{rounded}): "
            "raise it."
        )
    if not padded:
        return _cut_by_sum(lengths, max_tokens=max_tokens, widest=max_sentences or num_blocks)
    bounds = [0]
    widest = max_sentences or num_blocks
    while bounds[-1] < num_blocks:
        start = bounds[-1]
        # A batch cannot hold more blocks than would fit at the length of its first one.
        window = lengths[start : start + min(widest, max_tokens // max(int(lengths[start]), 1))]
        filled = np.maximum.accumulate(window.astype(np.int64)) * np.arange(1, len(window) + 1)
        size = int(np.searchsorted(filled, max_tokens, side="right"))
        is_last = start + size == num_blocks
        if size > required_batch_size_multiple and not is_last:
            size -= size % required_batch_size_multiple
        bounds.append(start + size)
    return np.array(bounds)


def _cut_by_sum(lengths: NDArray[np.int32], *, max_tokens: int, widest: int) -> NDArray[np.int64]:
    ends = np.cumsum(lengths, dtype=np.int64)
    bounds = [0]
    while bounds[-1] < len(lengths):
        start = bounds[-1]
        before = int(ends[start - 1]) if start else 0
        bounds.append(min(int(np.searchsorted(ends, before + max_tokens, side="right")), start + widest))
    return np.array(bounds)
