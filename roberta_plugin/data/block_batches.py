"""Batches of an epoch, made on access: millions of them cost as much as one.

Stage of the flow in `roberta_plugin/data/__init__.py`.

Example: an order of 5 blocks in batches of 2 -> `BlockBatches(order, range(0, 5, 2), 5)` has 3 batches, of the
positions [0, 2), [2, 4) and [4, 5).

Shapes: B blocks in a batch.
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

    __slots__ = ("_order", "_start", "_stop")

    def __init__(self, order: Order, start: int, stop: int) -> None:
        self._order, self._start, self._stop = order, start, stop

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

    def __reduce__(self) -> tuple[type[BlockBatch], tuple[KnownOrder, int, int]]:
        # A data-loader worker receives only this batch, not the order of the whole epoch.
        return BlockBatch, (KnownOrder(self.indices.copy(), self.passes.copy()), 0, len(self))


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

    def num_blocks_before(self, number: int) -> int:
        """Number of blocks in all batches before batch `number`; after the last batch, the number of all blocks."""
        return self._start(number) - self._start(0)


def num_blocks_before(batches: Sequence[Any], number: int) -> int:
    """Number of blocks in the first `number` batches."""
    if isinstance(batches, BlockBatches):
        return batches.num_blocks_before(number)
    return sum(len(batch) for batch in batches[:number])
