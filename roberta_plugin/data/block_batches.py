"""Batches of an epoch, made on access: millions of them cost as much as one; and where the batches of an update begin.

Stage of the flow in `roberta_plugin/data/__init__.py`.

Example: an order of 5 blocks in batches of 2 -> `BlockBatches(order, range(0, 5, 2), 5)` has 3 batches, of the
positions [0, 2), [2, 4) and [4, 5).

Cutting an order of blocks every `batch_size` blocks gives updates of B blocks only if B is a multiple of ranks x
batches a rank. Here each update takes the next B blocks for any number of ranks, and its N batches, N = ranks x batches
a rank, share them out: with B = N q + e, 0 <= e < N, the first e batches have q + 1 blocks and the others q. Batch n
goes to rank n mod R, so that

- the blocks of update k are [k B, (k + 1) B) of the order: N does not occur in it;
- a rank has ceil(B / R) blocks of an update at most, which is the least that the busiest rank can have: with
  N = R F, every rank has F q blocks, and of the e larger batches ceil(e / R) at most; B / R = F q + e / R;
- every rank has equally many batches, none of them empty (N <= B), so no dummy batch is needed.

fairseq divides the sum of the gradients of all ranks by the sum of their predicted tokens, and masks depend on (seed,
pass, block): the update is the same up to the order of summation.

Example: 7 blocks an update in 3 batches, an epoch of 12 blocks: batches begin at 0 3 5 | 7 10, and the last update
has 5 blocks in 2 batches.

Shapes: B blocks of a batch or an update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.block_order import KnownOrder, Order

T = TypeVar("T")


class BlockBatch:
    """Blocks [start, stop) of an epoch's order: sized, and iterable over addresses (pass, index)."""

    __slots__ = ("_order", "_start", "_stop", "updates")

    def __init__(self, order: Order, start: int, stop: int, *, updates: int | None = None) -> None:
        """`updates` are those that the training has begun before the update of this batch; None: not in a training."""
        self._order, self._start, self._stop = order, start, stop
        self.updates = updates

    def after(self, updates: int) -> BlockBatch:
        """The same blocks, in the update that follows so many."""
        return BlockBatch(self._order, self._start, self._stop, updates=updates)

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def indices(self) -> NDArray[np.int64]:
        """Global index of each block (B,)."""
        return self._order.addresses(self._start, self._stop).indices

    @property
    def passes(self) -> NDArray[np.int64]:
        """The number of times each block has been visited, this time included (B,)."""
        return self._order.addresses(self._start, self._stop).passes

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.passes.tolist(), self.indices.tolist(), strict=True)

    def __reduce__(self) -> tuple[Callable[..., BlockBatch], tuple[KnownOrder, int, int, int | None]]:
        # A data-loader worker receives only this batch, not the order of the whole epoch.
        return _batch, (KnownOrder(self.indices.copy(), self.passes.copy()), 0, len(self), self.updates)


def _batch(order: Order, start: int, stop: int, updates: int | None) -> BlockBatch:
    return BlockBatch(order, start, stop, updates=updates)


class LazySequence(Sequence[T]):
    """A sequence whose element i is `make(numbers[i])`; a slice is as lazy as the whole."""

    def __init__(self, make: Callable[[int], T], numbers: range) -> None:
        self._make, self._numbers = make, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> LazySequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | LazySequence[T]:
        if isinstance(index, slice):
            return LazySequence(self._make, self._numbers[index])
        return self._make(self._numbers[index])


class BlockBatches(LazySequence[BlockBatch]):
    """Consecutive batches: batch i begins at block `starts[i]` of the order; the last one ends at `stop`."""

    def __init__(self, order: Order, starts: Sequence[int] | NDArray[np.int64], stop: int) -> None:
        super().__init__(self._batch, range(len(starts)))
        self._order, self._starts, self._stop = order, starts, stop

    def _batch(self, number: int) -> BlockBatch:
        return BlockBatch(self._order, self._start(number), self._start(number + 1))

    def _start(self, number: int) -> int:
        return int(self._starts[number]) if number < len(self._starts) else self._stop

    def first(self, number: int) -> BlockBatches:
        """The first `number` batches, or all if there are fewer."""
        if number >= len(self):
            return self
        return BlockBatches(self._order, self._starts[:number], self._start(number))

    def num_blocks_before(self, number: int) -> int:
        """Number of blocks in all batches before batch `number`; after the last batch, the number of all blocks."""
        return self._start(number) - self._start(0)


def num_blocks_before(batches: Sequence[Any], number: int) -> int:
    """Number of blocks in the first `number` batches."""
    if isinstance(batches, BlockBatches):
        return batches.num_blocks_before(number)
    return sum(len(batch) for batch in batches[:number])


class UpdateStarts(Sequence[int]):
    """The first block of each batch, computed on demand.

    Args:
        start: first block.
        stop: end of the epoch; the last update may be incomplete.
        blocks: blocks of an update on all ranks.
        batches: batches of an update on all ranks.
    """

    def __init__(self, start: int, stop: int, *, blocks: int, batches: int) -> None:
        if not 1 <= batches <= blocks:
            raise ValueError(
                f"--update-sequences {blocks} cannot be shared out among {batches} batches of ranks x --update-freq: "
                f"give {blocks} ranks at most, and a lower --update-freq."
            )
        self._start, self._blocks, self._batches = start, blocks, batches
        self._small, self._num_larger = divmod(blocks, batches)
        updates, rest = divmod(max(0, stop - start), blocks)
        self._length = updates * batches + self._batches_before(rest)

    def _batches_before(self, block: int) -> int:
        """Number of batches that begin before a block of an update."""
        in_larger = self._num_larger * (self._small + 1)
        if block <= in_larger:
            return -(-block // (self._small + 1))
        return self._num_larger - (-(block - in_larger) // self._small)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, number: int) -> int: ...

    @overload
    def __getitem__(self, number: slice) -> list[int]: ...

    def __getitem__(self, number: int | slice) -> int | list[int]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(self._length))]
        if not -self._length <= number < self._length:
            raise IndexError(f"batch {number} of {self._length}")
        update, batch = divmod(number % self._length, self._batches)
        return self._start + update * self._blocks + batch * self._small + min(batch, self._num_larger)
