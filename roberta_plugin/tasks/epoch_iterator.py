"""fairseq's epoch iterator, over batches made anew for every epoch and with the position kept in blocks.

fairseq freezes the batches of the first epoch and shuffles only their order, and its checkpoints count iterations of
one rank, which mean nothing once the number of ranks or the batch size changes. Here the order of the blocks is a
function of (seed, epoch), batches are cut from it one after the other, and a checkpoint also says how many blocks of
the epoch have been seen by all ranks together: a run that goes on elsewhere sees exactly the rest.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence, Sized
from typing import Any

from fairseq.data import iterators

from roberta_plugin.data.block_batches import LazySequence, num_blocks_before
from roberta_plugin.data.block_order import ORDER_VERSION

logger = logging.getLogger(__name__)

BLOCKS_SEEN = "blocks_in_epoch"
ORDER = "order_of_blocks"  # the version of the order in which they were seen


class BlockEpochIterator(iterators.EpochBatchIterator):
    """An `EpochBatchIterator` whose batches come from `make_batches(epoch, first_block)`.

    `make_batches` returns the batches of all ranks for the rest of an epoch from its block number `first_block` on;
    batches are sized, and neighbours go to neighbouring ranks. The order is final: fairseq does not shuffle it again.
    """

    def __init__(self, *, make_batches: Callable[[int, int], Sequence[Sized]], **options: Any) -> None:
        self._make_batches = make_batches
        self._first_block = 0  # blocks of the current epoch that were seen before this iterator took over
        self._first_iteration = 0  # and how many iterations of one rank they would have been with its batches
        self._is_fixed = False  # whether every epoch is like the first, as in validation
        self._frozen_batches: Sequence[Sized] | None
        super().__init__(
            batch_sampler=lambda dataset, epoch: make_batches(1 if self._is_fixed else epoch, self._first_block),
            disable_shuffling=True,
            reuse_dataloader=True,
            **options,
        )

    @property
    def frozen_batches(self) -> Sequence[Sized]:
        """The batches of all ranks, as they are: fairseq would list all of them."""
        batches: Sequence[Sized] | None = self._frozen_batches
        if batches is None:
            batches = self._frozen_batches = self.batch_sampler(self.dataset, self.epoch)
        return batches

    def __len__(self) -> int:
        return int(self._first_iteration + super().__len__())

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> Sequence[Any]:
        """This rank's batches of the epoch, with an empty one in the place of each iteration that was done before."""
        batches, first_iteration = self.frozen_batches, self._first_iteration

        def batch_of(iteration: int) -> Any:
            number = (iteration - first_iteration) * self.num_shards + self.shard_id
            return batches[number] if 0 <= number < len(batches) else []

        return LazySequence(batch_of, range(first_iteration - (-len(batches) // self.num_shards)))

    def next_epoch_itr(
        self, shuffle: bool = True, fix_batches_to_gpus: bool = False, set_dataset_epoch: bool = True
    ) -> Any:
        """The iterator of the epoch at hand; a resumed epoch's position is forgotten once the next one begins.

        fairseq validates again and again with one iterator, whose epochs count on, and marks this by
        `set_dataset_epoch=False`: then all epochs are the first, so that losses can be compared.
        """
        self._is_fixed = not set_dataset_epoch
        if self._next_epoch_itr is None and self.next_epoch_idx != self.epoch:
            self._first_block = self._first_iteration = 0
        return super().next_epoch_itr(shuffle, fix_batches_to_gpus, set_dataset_epoch)

    def state_dict(self) -> dict[str, Any]:
        """fairseq's state, and the blocks of this epoch that all ranks together have seen."""
        state = dict(super().state_dict())
        num_batches = (state["iterations_in_epoch"] - self._first_iteration) * self.num_shards
        if state["iterations_in_epoch"] > 0:
            state[BLOCKS_SEEN] = self._first_block + num_blocks_before(self.frozen_batches, num_batches)
        else:
            state[BLOCKS_SEEN] = 0
        state[ORDER] = ORDER_VERSION
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken, whatever the number of ranks and the batch size were then.

        A state that fairseq's own iterator wrote has no count of blocks: it is taken to be of the same ranks and
        batches as now, as fairseq takes it.
        """
        seen = state_dict.get(BLOCKS_SEEN)
        if seen is None:
            super().load_state_dict(state_dict)
            return
        if seen and state_dict.get(ORDER) != ORDER_VERSION:
            logger.warning(
                "The checkpoint was written by a version of roberta_plugin with another order of blocks: in the rest "
                "of this epoch, some blocks come a second time and others not at all. The next epochs are whole."
            )
        self.epoch = state_dict["epoch"]
        batches_before = self._count_batches_before(int(seen))
        self._first_block = int(seen)
        self._first_iteration = -(-batches_before // self.num_shards)
        self._frozen_batches = None
        super().load_state_dict({**state_dict, "iterations_in_epoch": self._first_iteration})

    def _count_batches_before(self, first_block: int) -> int:
        """How many of the epoch's batches, cut as they are now, begin before `first_block`."""
        if not first_block:
            return 0
        batches = self._make_batches(self.epoch, 0)
        return bisect_left(range(len(batches)), first_block, key=lambda number: num_blocks_before(batches, number))
