"""The order in which an epoch visits its blocks: a pure function of (seed, epoch, position), computed on demand.

Stage of the flow in `roberta_plugin/data/__init__.py`. The order does not depend on the batch size or on the number
of ranks: batches are cut from it one after the other. A checkpoint therefore only stores "the first n blocks of
epoch e", and a run can resume with other batch sizes on another number of GPUs.

Several corpora: each is a stream of passes; a pass is one permutation of all its blocks. An epoch takes the next
`counts[i]` blocks of stream i, so no block repeats before its whole corpus has been seen.

Example: corpora of 3 and 2 blocks have the global indices 0 1 2 and 3 4. With counts [2, 3], epoch 1 takes, in random
order, two blocks of pass 1 of the first corpus (say 2 and 0), and of the second both blocks of pass 1 (4 and 3) and one
of pass 2 (say 3). Epoch 2 begins with the block left in pass 1 of the first corpus (1).

Shapes: N blocks in an epoch, n of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.counter_random import add_to_keys, make_keys, permute
from roberta_plugin.data.rounding import round_up

ORDER_VERSION = 2
"""Changes whenever the same (seed, epoch) gives another order, because "the first n blocks" then differ."""

# Within a pool, blocks of similar length form groups. Batches up to the size of a group have almost no padding, and
# the order of the groups stays random.
GROUP_SIZE = 64
GROUPS_IN_POOL = 256
_POOL_WITHOUT_GROUPS = 1024  # positions computed at a time if there is nothing to group

_STREAM, _INTERLEAVING, _GROUPING = range(3)  # purposes of random numbers: part of their seed


class Addresses(NamedTuple):
    """Addresses of blocks: global index (n,) and pass of the corpus (n,), counted from 1."""

    indices: NDArray[np.int64]
    passes: NDArray[np.int64]


class Order(Protocol):
    """The blocks of an epoch."""

    def __len__(self) -> int:
        """N."""
        ...

    def addresses(self, start: int, stop: int) -> Addresses:
        """The blocks at the positions [start, stop) of the epoch."""
        ...


class KnownOrder:
    """An order given as arrays (N,)."""

    def __init__(self, indices: NDArray[np.int64], passes: NDArray[np.int64]) -> None:
        self._all = Addresses(indices, passes)

    def __len__(self) -> int:
        return len(self._all.indices)

    def addresses(self, start: int, stop: int) -> Addresses:
        """The blocks at the positions [start, stop) of the epoch."""
        return Addresses(self._all.indices[start:stop], self._all.passes[start:stop])


class EpochOrder:
    """The random order of one epoch, computed one pool of positions at a time, so starting an epoch costs nothing."""

    def __init__(
        self,
        num_blocks: Sequence[int],
        *,
        seed: int,
        epoch: int,
        counts: Sequence[int] | None = None,
        lengths_of: Callable[[Addresses], NDArray[np.int32]] | None = None,
    ) -> None:
        """Describe the order.

        Args:
            num_blocks: blocks of each corpus; global indices continue from corpus to corpus.
            seed: seed of the run.
            epoch: number of the epoch, from 1.
            counts: blocks that an epoch takes from each corpus (default: all of each).
            lengths_of: maps addresses to tokens of the blocks; None if all are equal, so grouping is not needed.
        """
        self._num_blocks = list(num_blocks)
        self._counts = self._num_blocks if counts is None else list(counts)
        assert len(self._counts) == len(self._num_blocks)
        self._seed, self._epoch, self._lengths_of = seed, epoch, lengths_of
        self._first_index = np.concatenate([[0], np.cumsum(self._num_blocks)])
        self._first_draw = np.concatenate([[0], np.cumsum(self._counts)])
        self._pool_size = _POOL_WITHOUT_GROUPS if lengths_of is None else GROUP_SIZE * GROUPS_IN_POOL
        self._pools: dict[int, Addresses] = {}  # the last two, because a batch may span both

    def __len__(self) -> int:
        return int(self._first_draw[-1])

    def addresses(self, start: int, stop: int) -> Addresses:
        """The blocks at the positions [start, stop) of the epoch."""
        first, last = start // self._pool_size, max(stop - 1, start) // self._pool_size
        pools = [self._pool(number) for number in range(first, last + 1)]
        begin = first * self._pool_size
        return Addresses(*(np.concatenate(parts)[start - begin : stop - begin] for parts in zip(*pools, strict=True)))

    def _pool(self, number: int) -> Addresses:
        if number not in self._pools:
            if len(self._pools) == 2:
                self._pools.pop(next(iter(self._pools)))
            self._pools[number] = self._make_pool(number)
        return self._pools[number]

    def _make_pool(self, number: int) -> Addresses:
        start = number * self._pool_size
        pool = self._draw(np.arange(start, min(start + self._pool_size, len(self))))
        if self._lengths_of is None:
            return pool
        rng = np.random.default_rng((_GROUPING, self._seed, self._epoch, number))
        grouped = _group_by_length(self._lengths_of(pool), rng=rng)
        return Addresses(pool.indices[grouped], pool.passes[grouped])

    def _draw(self, positions: NDArray[np.int64]) -> Addresses:
        """The blocks at `positions` (n,), before grouping by length."""
        if len(self._num_blocks) > 1:
            key = make_keys(self._seed, _INTERLEAVING, indices=np.array([self._epoch]))
            positions = permute(positions, size=len(self), keys=key)
        corpora = np.searchsorted(self._first_draw, positions, side="right") - 1
        sizes, counts = np.array(self._num_blocks)[corpora], np.array(self._counts)[corpora]
        draws = positions - self._first_draw[corpora] + (self._epoch - 1) * counts  # of the endless stream of a corpus
        number, place = np.divmod(draws, sizes)
        keys = add_to_keys(make_keys(self._seed, _STREAM, indices=corpora), number)
        return Addresses(permute(place, size=sizes, keys=keys) + self._first_index[corpora], number + 1)


def _group_by_length(lengths: NDArray[np.int32], *, rng: np.random.Generator) -> NDArray[np.int64]:
    """A permutation of the positions of a pool (n,): sorted by length, then the groups in random order.

    In the last pool of an epoch one group may be short. It always comes last: anywhere else it would
    shift all later batches across two groups.

    Example, with groups of 2: lengths 9 3 8 4 -> sorted positions 1 3 2 0 -> groups [1 3] [2 0] in random order.
    """
    if len(lengths) and int(lengths.max()) < 2**16:
        lengths = lengths.astype(np.uint16)  # which numpy sorts in linear time
    by_length = np.argsort(lengths, kind="stable")
    num_full, short = divmod(len(by_length), GROUP_SIZE)
    start = int(rng.integers(num_full + 1)) * GROUP_SIZE
    full = np.delete(by_length, slice(start, start + short)).reshape(num_full, GROUP_SIZE)
    return np.concatenate([rng.permutation(full).reshape(-1), by_length[start : start + short]])


def cut_in_parts(
    parts: Iterable[NDArray[np.int32]],
    *,
    max_tokens: int,
    max_sentences: int | None,
    required_batch_size_multiple: int = 1,
    padded: bool = True,
    multiple: int = 1,
) -> NDArray[np.int64]:
    """The result of `cut_batches` on the concatenated `parts` of an order, in the memory of one part."""
    if max_sentences is not None and max_sentences > required_batch_size_multiple:
        max_sentences -= max_sentences % required_batch_size_multiple  # even if max_tokens does not bind in a part
    bounds = [np.zeros(1, dtype=np.int64)]
    position = 0  # first block of the batch that may continue in the next part
    begun = np.empty(0, dtype=np.int32)  # lengths of its blocks so far
    for part in parts:
        lengths = np.concatenate([begun, part])
        cut = cut_batches(
            lengths,
            max_tokens=max_tokens,
            max_sentences=max_sentences,
            required_batch_size_multiple=required_batch_size_multiple,
            padded=padded,
            multiple=multiple,
        )
        bounds.append(position + cut[1:-1])
        begun = lengths[cut[-2] :] if len(cut) > 1 else lengths
        position += len(lengths) - len(begun)
    if len(begun):
        bounds.append(np.array([position + len(begun)]))
    return np.concatenate(bounds)


def cut_batches(
    lengths: NDArray[np.int32],
    *,
    max_tokens: int,
    max_sentences: int | None,
    required_batch_size_multiple: int = 1,
    padded: bool = True,
    multiple: int = 1,
) -> NDArray[np.int64]:
    """Cut an order into batches of consecutive blocks; return their bounds (batches + 1,).

    A batch has at most `max_sentences` blocks and at most `max_tokens` tokens, padding included. If `padded`, each
    block is padded to the longest one, rounded up to a `multiple`; otherwise the blocks form one row, padded to a
    `multiple`.
    A batch that max_tokens limits is shortened to a multiple of `required_batch_size_multiple` blocks, if it has that
    many.

    Example: lengths 4 3 5 2 2 and max_tokens 10 -> bounds 0 2 4 5 if padded: 2 x 4, 2 x 5 and 1 x 2 tokens; without
    padding -> bounds 0 2 5: 7 and 9 tokens.

    No block alone exceeds `max_tokens` (`check_token_limit`).
    """
    num_blocks = len(lengths)
    if multiple > 1 and padded:
        lengths = round_up(lengths, multiple)
    elif multiple > 1:
        max_tokens -= max_tokens % multiple
    if max_sentences is not None and int(lengths.max(initial=0)) * max_sentences <= max_tokens:
        return np.minimum(np.arange(0, num_blocks + max_sentences, max_sentences), num_blocks)
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


def check_token_limit(width: int, *, max_tokens: int, longest: int, multiple: int) -> None:
    """Refuse a limit that a single block, the longest one padded to `width`, exceeds."""
    if width > max_tokens:
        rounded = f", which --pad-to-multiple {multiple} rounds up" if longest <= max_tokens else ""
        raise ValueError(
            f"--max-tokens ({max_tokens}) is smaller than the longest block ({longest} tokens{rounded}): raise it."
        )
