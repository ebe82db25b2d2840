"""fairseq's epoch iterator, with new batches in every epoch and a position that counts blocks.

fairseq freezes the batches of the first epoch and shuffles only their order. Its checkpoints count iterations of one
rank, a number that means nothing after a change of the number of ranks or of the batch size. Here the order of blocks
is a function of (seed, epoch), batches are consecutive pieces of it, and a checkpoint also holds the number of blocks
of the epoch that all ranks together have seen: a run resumed with other settings sees exactly the rest.

An iteration is one batch of one rank; an update takes `update_freq` iterations. This iterator avoids two faults of
fairseq's trainer:

- `GroupedIterator` rounds both the iterations done and the whole epoch's iterations up to updates, which can lose an
  update between the two. So a resumed epoch begins at a multiple of update_freq.
- `Trainer.train_step` gives dummy batches to ranks that have run out, and then either counts the dummies' tokens or
  drops the tokens of the whole rank, whose gradients count nevertheless. So in the last update of an epoch a rank has
  only real batches, or one dummy and nothing else.
"""

from __future__ import annotations

import logging
import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence, Sized
from typing import Any

import numpy as np
from fairseq.data import iterators

from roberta_plugin.data.block_batches import BlockBatch, BlockBatches, LazySequence, num_blocks_before
from roberta_plugin.data.block_order import ORDER_VERSION
from roberta_plugin.data.rounding import ceil_div

logger = logging.getLogger(__name__)

BLOCKS_SEEN = "blocks_in_epoch"
BEGUN = "updates_begun_in_vain"  # that changed no weights, such as those whose gradients overflowed in fp16
ORDER = "order_of_blocks"  # version of the order in which they were seen
EPOCH = "epoch_is_made_of"  # blocks of the epoch, seed, blocks of each corpus in a mixture, fingerprint of the order
_FINGERPRINTED = 1024  # blocks of the order whose fingerprint is taken


class BlockEpochIterator(iterators.EpochBatchIterator):
    """An `EpochBatchIterator` whose batches come from `make_batches(epoch, first_block)`.

    Args:
        make_batches: (epoch, first_block) -> the batches of all ranks from that block to the end of the epoch. Each has
            a length; consecutive batches go to consecutive ranks. fairseq does not shuffle them.
        update_freq: epoch -> iterations per update.
        count_updates: the number of updates of the training, asked when an epoch begins or resumes. Each batch of a
            dataset that `counts_updates` knows after how many it comes, in whichever process it is made.
        most_updates: updates after which the epoch ends, though it has more batches; None: it has all.
        equal_shares: whether all ranks need equally many batches, as the collectives of fully_sharded do; fairseq's
            dummies then fill the last update.
        options: as for fairseq's iterator.
    """

    dataloader: Any

    def __init__(
        self,
        *,
        make_batches: Callable[[int, int], Sequence[Sized]],
        update_freq: Callable[[int], int] = lambda epoch: 1,
        count_updates: Callable[[], int] = int,
        equal_shares: Callable[[], bool] = lambda: False,
        most_updates: int | None = None,
        **options: Any,
    ) -> None:
        self._make_batches = make_batches
        self._update_freq = update_freq
        self._count_updates = count_updates
        self._updates_before = 0  # of the training, at the first block of this run's part of the epoch
        self._in_vain = 0  # see BEGUN: blocks of this epoch in an earlier run
        self._equal_shares = equal_shares
        self._most_updates = most_updates
        self._first_block = 0  # blocks of the current epoch that an earlier run has seen
        self._first_iteration = 0  # the iterations of one rank that these blocks take with the present batches
        self._last_fingerprint = (0, 0)  # epoch, value
        self._is_fixed = False  # whether every epoch repeats the first, as in validation
        self._frozen_batches: Sequence[Sized] | None
        super().__init__(
            batch_sampler=lambda dataset, epoch: self._batches_of(1 if self._is_fixed else epoch),
            disable_shuffling=True,
            reuse_dataloader=True,
            **options,
        )

    @property
    def frozen_batches(self) -> Sequence[Sized]:
        """The batches of all ranks, as a lazy sequence; fairseq would make a list of them."""
        batches: Sequence[Sized] | None = self._frozen_batches
        if batches is None:
            batches = self._frozen_batches = self.batch_sampler(self.dataset, self.epoch)
        return batches

    def _batches_of(self, epoch: int) -> Sequence[Sized]:
        """The batches of all ranks for the rest of the epoch."""
        batches = self._make_batches(epoch, self._first_block)
        if self._most_updates is None:
            return batches
        iterations = self._most_updates * self._update_freq(epoch)
        if self.skip_remainder_batch:
            iterations += 1  # fairseq drops the last
        most = iterations * self.num_shards
        return batches.first(most) if isinstance(batches, BlockBatches) else batches[:most]

    def __len__(self) -> int:
        return int(self._first_iteration + super().__len__())

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> Sequence[Any]:
        """This rank's batches for the rest of the epoch.

        A rank with one batch fewer than others gets an empty batch, which fairseq replaces by a dummy, only if it would
        otherwise have none in the last update. Example: 5 batches, 2 ranks -> rank 0 has [0, 2, 4]; rank 1 has
        [1, 3, empty] with update_freq 1 or 2, and [1, 3] with update_freq 3.
        """
        batches = self.frozen_batches
        num_own = max(0, ceil_div(len(batches) - self.shard_id, self.num_shards))
        update_freq = 1 if self._is_fixed or self._equal_shares() else self._update_freq(epoch)
        needs_dummy = num_own < self._iterations(len(batches)) and num_own % update_freq == 0
        self._updates_before = self._count_updates() + self._in_vain
        before = self._updates_before if getattr(self.dataset, "counts_updates", False) and not self._is_fixed else None
        in_update = self._update_freq(epoch)

        def batch_of(number: int) -> Any:
            if number >= num_own:
                return []
            batch = batches[number * self.num_shards + self.shard_id]
            if before is None or not isinstance(batch, BlockBatch):
                return batch
            return batch.after(before + number // in_update)

        return LazySequence(batch_of, range(num_own + needs_dummy))

    def next_epoch_itr(
        self, shuffle: bool = True, fix_batches_to_gpus: bool = False, set_dataset_epoch: bool = True
    ) -> Any:
        """The iterator of the current epoch; the next epoch starts from its first block.

        fairseq uses one iterator for all validations, counts them as epochs, and passes `set_dataset_epoch=False`.
        All epochs then repeat the first, so that losses are comparable.
        """
        self._is_fixed = not set_dataset_epoch
        if self._next_epoch_itr is None and self.next_epoch_idx != self.epoch:
            self._first_block = self._first_iteration = self._in_vain = 0
        return super().next_epoch_itr(shuffle, fix_batches_to_gpus, set_dataset_epoch)

    def state_dict(self) -> dict[str, Any]:
        """fairseq's state, and the number of blocks of this epoch that all ranks together have seen."""
        state = dict(super().state_dict())
        if self.end_of_epoch():
            state[BLOCKS_SEEN] = 0
        else:
            iterations = state["iterations_in_epoch"] - self._first_iteration
            num_batches = iterations * self.num_shards
            begun = self._updates_before + ceil_div(iterations, self._update_freq(self.epoch))
            if getattr(self.dataset, "counts_updates", False) and begun > self._count_updates():
                state[BEGUN] = begun - self._count_updates()
            state[BLOCKS_SEEN] = self._first_block + num_blocks_before(self.frozen_batches, num_batches)
        state[ORDER] = ORDER_VERSION
        state[EPOCH] = self._description(int(state["epoch"]))
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume at the state's block; number of ranks, batch size and update_freq may differ from then.

        A state of fairseq's own iterator has no count of blocks: its iterations are converted to blocks as if ranks and
        batches were the present ones, which fairseq also assumes.
        """
        self.epoch = state_dict["epoch"]
        self._cur_epoch_itr = self._next_epoch_itr = None
        self._first_block = self._first_iteration = 0
        self._in_vain = int(state_dict.get(BEGUN, 0))
        self._frozen_batches = None
        seen = state_dict.get(BLOCKS_SEEN)
        if seen is None:
            num_batches = state_dict.get("iterations_in_epoch", 0) * self.num_shards
            seen = num_blocks_before(self.frozen_batches, num_batches) if num_batches else 0
        elif seen and state_dict.get(ORDER) != ORDER_VERSION:
            logger.warning(
                "The checkpoint was written by a version of roberta_plugin with another order of blocks: the rest of "
                "this epoch repeats some blocks and misses others. Later epochs are complete."
            )
        elif seen and (before := state_dict.get(EPOCH)):
            now = self._description(self.epoch)
            if before != now[: len(before)]:  # earlier versions kept no fingerprint
                logger.warning(
                    f"The checkpoint was written in an epoch of {before[0]:,} blocks with seed {before[1]}, and this "
                    f"one has {now[0]:,} blocks and seed {now[1]}, or another order: the data, their weights, or "
                    "options that make or order blocks (as --tokens-per-sample, --pack-sequences) have changed. The "
                    "rest of this epoch repeats some text and misses other. Later epochs are complete."
                )
        if seen > 0:
            self._begin_after(int(seen))

    def _description(self, epoch: int) -> list[Any]:
        mixture = getattr(self.dataset, "mixture", None) or []
        return [len(self.dataset), self.seed, [taken for _, taken in mixture], self._fingerprint(epoch)]

    def _fingerprint(self, epoch: int) -> int:
        """CRC-32 of the first blocks of the epoch and their lengths: it identifies the order itself."""
        if self._last_fingerprint[0] != epoch:
            order = self.dataset.order(epoch)
            first = order.addresses(0, min(_FINGERPRINTED, len(order)))
            arrays = np.stack([first.indices, first.passes, self.dataset.lengths_of(first)]).astype("<i8")
            self._last_fingerprint = (epoch, zlib.crc32(arrays.tobytes()))
        return self._last_fingerprint[1]

    def _begin_after(self, num_blocks: int) -> None:
        """Start after `num_blocks` blocks of the epoch, or at the next epoch if no update is left."""
        update_freq = self._update_freq(self.epoch)
        updates_before = ceil_div(self._iterations(self._count_batches_before(num_blocks)), update_freq)
        self._first_block, self._first_iteration = num_blocks, updates_before * update_freq
        self._frozen_batches = None
        # --skip-remainder-batch drops the last iteration, and then an incomplete update
        at_least = update_freq + 1 if self.skip_remainder_batch else 1
        if self._iterations(len(self.frozen_batches)) >= at_least:
            self._next_epoch_itr = self._get_iterator_for_epoch(self.epoch, shuffle=False)
            return
        logger.info(f"epoch {self.epoch} has no update left after block {num_blocks:,}: starting the next epoch")
        self._first_block = self._first_iteration = self._in_vain = 0
        self._frozen_batches = None
        self.epoch += 1

    def _count_batches_before(self, first_block: int) -> int:
        """Number of the epoch's batches, with the present batch size, that begin before `first_block`."""
        if not first_block:
            return 0
        batches = self._make_batches(self.epoch, 0)
        return bisect_left(range(len(batches)), first_block, key=lambda number: num_blocks_before(batches, number))

    def close(self) -> None:
        """Stop the data-loader workers; a further epoch starts them again.

        If the garbage collector stopped them, training would wait 5 s for each: this iterator is part of a reference
        cycle, and the collector closes the cycle's queues before torch can send the end through them. torch then waits
        for a worker that never got the message, and kills it.
        """
        loader: Any = self.dataloader
        self.dataloader = None
        workers = getattr(loader, "_iterator", None)
        if self.num_workers and workers is not None:
            workers._shutdown_workers()

    def _iterations(self, num_batches: int) -> int:
        """Iterations of the rank with the most of `num_batches` batches."""
        return int(ceil_div(num_batches, self.num_shards))

    def _get_iterator_for_epoch(
        self, epoch: int, shuffle: bool, fix_batches_to_gpus: bool = False, offset: int = 0
    ) -> Any:
        """fairseq's iterator over the rest of the epoch; its count includes the iterations done before."""
        iterator = super()._get_iterator_for_epoch(epoch, shuffle, fix_batches_to_gpus)
        iterator.n += self._first_iteration
        iterator.total += self._first_iteration
        return iterator
