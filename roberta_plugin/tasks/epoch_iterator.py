"""fairseq's epoch iterator, over batches made anew for every epoch and with the position kept in blocks.

fairseq freezes the batches of the first epoch and shuffles only their order, and its checkpoints count iterations of
one rank, which mean nothing once the number of ranks or the batch size changes. Here the order of the blocks is a
function of (seed, epoch), batches are cut from it one after the other, and a checkpoint also says how many blocks of
the epoch have been seen by all ranks together: a run that goes on elsewhere sees exactly the rest.

An iteration is one batch of one rank, an update takes `update_freq` of them. Two of fairseq's habits are kept from
doing harm here:

- `GroupedIterator` rounds up both the iterations done and those of the whole epoch to updates, so that an update can
  get lost between the two: a resumed epoch begins at a multiple of update_freq.
- `Trainer.train_step` fills up ranks that have run out of batches with dummies, and then either counts the dummies'
  tokens or drops those of the whole rank, whose gradients count nevertheless: at the end of an epoch a rank has real
  batches alone, or one dummy and nothing else.
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

    Args:
        make_batches: returns the batches of all ranks for the rest of an epoch from its block number `first_block` on;
            batches are sized, and neighbours go to neighbouring ranks. The order is final: fairseq does not shuffle it.
        update_freq: epoch -> iterations of an update in it.
        equal_shares: whether all ranks need equally many batches, as the collectives of fully_sharded do: then
            fairseq's dummies fill up the last update.
        options: those of fairseq's iterator.
    """

    dataloader: Any

    def __init__(
        self,
        *,
        make_batches: Callable[[int, int], Sequence[Sized]],
        update_freq: Callable[[int], int] = lambda epoch: 1,
        equal_shares: Callable[[], bool] = lambda: False,
        **options: Any,
    ) -> None:
        self._make_batches = make_batches
        self._update_freq = update_freq
        self._equal_shares = equal_shares
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
        """This rank's batches of the rest of the epoch.

        A rank that gets one batch less than others goes without, or gets an empty one, fairseq's sign for a dummy, if
        it would have none at all in the last update.
        """
        batches = self.frozen_batches
        own = max(0, -(-(len(batches) - self.shard_id) // self.num_shards))
        update_freq = 1 if self._is_fixed or self._equal_shares() else self._update_freq(epoch)
        needs_dummy = own < self._iterations(len(batches)) and own % update_freq == 0

        def batch_of(number: int) -> Any:
            return batches[number * self.num_shards + self.shard_id] if number < own else []

        return LazySequence(batch_of, range(own + needs_dummy))

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
        if self.end_of_epoch():
            state[BLOCKS_SEEN] = 0
        else:
            num_batches = (state["iterations_in_epoch"] - self._first_iteration) * self.num_shards
            state[BLOCKS_SEEN] = self._first_block + num_blocks_before(self.frozen_batches, num_batches)
        state[ORDER] = ORDER_VERSION
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken, whatever the number of ranks, the batch size and update_freq were then.

        A state that fairseq's own iterator wrote has no count of blocks: it is taken to be of the same ranks and
        batches as now, as fairseq takes it, but in our order.
        """
        self.epoch = state_dict["epoch"]
        self._cur_epoch_itr = self._next_epoch_itr = None
        self._first_block = self._first_iteration = 0
        self._frozen_batches = None
        seen = state_dict.get(BLOCKS_SEEN)
        if seen is None:
            num_batches = state_dict.get("iterations_in_epoch", 0) * self.num_shards
            seen = num_blocks_before(self.frozen_batches, num_batches) if num_batches else 0
        elif seen and state_dict.get(ORDER) != ORDER_VERSION:
            logger.warning(
                "The checkpoint was written by a version of roberta_plugin with another order of blocks: in the rest "
                "of this epoch, some blocks come a second time and others not at all. The next epochs are whole."
            )
        if seen > 0:
            self._begin_after(int(seen))

    def _begin_after(self, num_blocks: int) -> None:
        """Let the iterator begin after so many blocks of the epoch, or with the next epoch if no update is left."""
        update_freq = self._update_freq(self.epoch)
        updates_before = -(-self._iterations(self._count_batches_before(num_blocks)) // update_freq)
        self._first_block, self._first_iteration = num_blocks, updates_before * update_freq
        self._frozen_batches = None
        # --skip-remainder-batch drops the last iteration, and what then is no full update
        at_least = update_freq + 1 if self.skip_remainder_batch else 1
        if self._iterations(len(self.frozen_batches)) >= at_least:
            self._next_epoch_itr = self._get_iterator_for_epoch(self.epoch, shuffle=False)
            return
        logger.info(f"epoch {self.epoch} has no update left after its block {num_blocks:,}: the next epoch begins")
        self._first_block = self._first_iteration = 0
        self._frozen_batches = None
        self.epoch += 1

    def _count_batches_before(self, first_block: int) -> int:
        """How many of the epoch's batches, cut as they are now, begin before `first_block`."""
        if not first_block:
            return 0
        batches = self._make_batches(self.epoch, 0)
        return bisect_left(range(len(batches)), first_block, key=lambda number: num_blocks_before(batches, number))

    def close(self) -> None:
        """End the data-loader workers; they start again if one more epoch is asked for.

        Left to the garbage collector, each takes 5 s, in which training stands still: this iterator is part of a
        reference cycle, and the collector closes the queues of a cycle before torch can say through them that it is
        the end. torch then waits for a worker that has heard nothing, and kills it.
        """
        loader: Any = self.dataloader
        self.dataloader = None
        workers = getattr(loader, "_iterator", None)
        if self.num_workers and workers is not None:
            workers._shutdown_workers()

    def _iterations(self, num_batches: int) -> int:
        """Iterations of the rank that has most of so many batches."""
        return int(-(-num_batches // self.num_shards))

    def _get_iterator_for_epoch(
        self, epoch: int, shuffle: bool, fix_batches_to_gpus: bool = False, offset: int = 0
    ) -> Any:
        """fairseq's, over the rest of the epoch, which counts on from the iterations that were done before."""
        iterator = super()._get_iterator_for_epoch(epoch, shuffle, fix_batches_to_gpus)
        iterator.n += self._first_iteration
        iterator.total += self._first_iteration
        return iterator
