"""The blocks of an update -> the batches of all ranks, for any number of ranks.

Stage of the flow in `roberta_plugin/data/__init__.py`. Cutting an order of blocks every `batch_size` blocks gives
updates of B blocks only if B is a multiple of ranks x batches a rank. Here each update takes the next B blocks for any
number of ranks, and its N batches, N = ranks x batches a rank, share them out: with B = N q + e, 0 <= e < N, the
first e batches have q + 1 blocks and the others q. Batch n goes to rank n mod R, so that

- the blocks of update k are [k B, (k + 1) B) of the order: N does not occur in it;
- a rank has ceil(B / R) blocks of an update at most, which is the least that the busiest rank can have: with
  N = R F, every rank has F q blocks, and of the e larger batches ceil(e / R) at most; B / R = F q + e / R;
- every rank has equally many batches, none of them empty (N <= B), so no dummy batch is needed.

fairseq divides the sum of the gradients of all ranks by the sum of their predicted tokens, and masks depend on (seed,
pass, block): the update is the same up to the order of summation.

Example: 7 blocks an update in 3 batches, an epoch of 12 blocks: batches begin at 0 3 5 | 7 10, and the last update
has 5 blocks in 2 batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class UpdateStarts(Sequence[int]):
    """The first block of each batch, computed on demand.

    Args:
        start: first block.
        stop: end of the epoch; the last update may be incomplete.
        blocks: blocks of an update on all ranks.
        batches: batches of an update on all ranks.

    Raises:
        ValueError: if a batch would be empty.
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
