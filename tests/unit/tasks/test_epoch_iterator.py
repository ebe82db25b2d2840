"""Each epoch shows every block once, for any number of ranks, and also after going on with another number."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from roberta_plugin.data.block_batches import BlockBatches
from roberta_plugin.data.block_order import ORDER_VERSION, EpochOrder, cut_batches
from roberta_plugin.tasks.epoch_iterator import BLOCKS_SEEN, ORDER, BlockEpochIterator

NUM_BLOCKS = 203
LENGTHS = np.random.default_rng(0).integers(5, 60, NUM_BLOCKS).astype(np.int32)


class BlockNumbers(torch.utils.data.Dataset):
    """A dataset whose block i is the number i."""

    def __getitem__(self, index):
        return index

    def __len__(self):
        return NUM_BLOCKS

    def collater(self, samples):
        return samples


def make_iterator(*, rank=0, ranks=1, batch_size=4, max_tokens=None, epoch=1):
    def make_batches(epoch, first_block):
        order = EpochOrder([NUM_BLOCKS], seed=5, epoch=epoch, lengths=LENGTHS.__getitem__)
        order = order.addresses(first_block, NUM_BLOCKS).indices
        bounds = cut_batches(LENGTHS[order], max_tokens=max_tokens, max_sentences=batch_size)
        return [order[a:b].tolist() for a, b in itertools.pairwise(bounds)]

    dataset = BlockNumbers()
    return BlockEpochIterator(
        make_batches=make_batches,
        dataset=dataset,
        collate_fn=dataset.collater,
        num_shards=ranks,
        shard_id=rank,
        epoch=epoch,
    )


def run_ranks(ranks, *, state=None, iterations=None, **options):
    """Let all ranks of a job read the epoch from `state` on; return the blocks seen and the state at the end."""
    seen: list[int] = []
    for rank in range(ranks):
        iterator = make_iterator(rank=rank, ranks=ranks, **options)
        if state is not None:
            iterator.load_state_dict(state)
        epoch = iterator.next_epoch_itr()
        for _ in range(iterations if iterations is not None else len(epoch) - epoch.n):
            seen += next(epoch)
        end_state = iterator.state_dict()
    return seen, end_state


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("max_tokens", [None, 300])
def test_every_block_is_seen_once_for_any_number_of_ranks(ranks, max_tokens):
    seen, state = run_ranks(ranks, max_tokens=max_tokens)
    assert Counter(seen) == Counter(range(NUM_BLOCKS))
    assert state["epoch"] == 2 and state[BLOCKS_SEEN] == 0


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 3), (4, 4)])
@pytest.mark.parametrize("max_tokens", [None, 300])
def test_a_run_that_goes_on_with_other_ranks_sees_exactly_the_rest(before, after, max_tokens):
    first, state = run_ranks(before, iterations=7, max_tokens=max_tokens)
    assert 0 < len(first) == state[BLOCKS_SEEN] < NUM_BLOCKS
    second, end_state = run_ranks(after, state=state, batch_size=6, max_tokens=max_tokens)
    assert Counter(first + second) == Counter(range(NUM_BLOCKS))
    assert end_state["epoch"] == 2

    third, state = run_ranks(1, state=end_state)
    assert Counter(third) == Counter(range(NUM_BLOCKS))


def test_a_run_can_be_moved_twice_within_an_epoch():
    first, state = run_ranks(2, iterations=5)
    second, state = run_ranks(3, state=state, iterations=4, batch_size=3)
    assert state[BLOCKS_SEEN] == len(first) + len(second)
    third, _ = run_ranks(1, state=state)
    assert Counter(first + second + third) == Counter(range(NUM_BLOCKS))


def test_going_on_with_the_same_ranks_keeps_batches_and_counts():
    whole = make_iterator()
    expected = list(whole.next_epoch_itr())
    _, state = run_ranks(1, iterations=11)
    resumed = make_iterator()
    resumed.load_state_dict(state)
    epoch = resumed.next_epoch_itr()
    assert epoch.n == resumed.iterations_in_epoch == 11
    assert len(resumed) == len(whole) == len(epoch)
    assert list(epoch) == expected[11:]
    following = list(resumed.next_epoch_itr())
    assert resumed.epoch == 2 and len(following) == len(expected) and following != expected
    assert following == list(make_iterator(epoch=2).next_epoch_itr())


def test_validation_sees_the_same_batches_again_and_again():
    iterator = make_iterator()
    first = list(iterator.next_epoch_itr(shuffle=False, set_dataset_epoch=False))
    assert list(iterator.next_epoch_itr(shuffle=False, set_dataset_epoch=False)) == first
    assert list(iterator.next_epoch_itr()) != first


def test_a_state_of_fairseqs_own_iterator_is_understood():
    _, state = run_ranks(1, iterations=11)
    del state[BLOCKS_SEEN]
    resumed = make_iterator()
    resumed.load_state_dict(state)
    assert next(resumed.next_epoch_itr()) == list(make_iterator().next_epoch_itr())[11]


class ManyBlocks(BlockNumbers):
    """So many that nobody can list them, with a batch sampler of their own."""

    def __len__(self):
        return 10**12

    def __getitems__(self, batch):
        return batch.indices.tolist()


def test_an_epoch_of_a_trillion_blocks_begins_and_goes_on_at_once():
    def make():
        dataset = ManyBlocks()
        order = EpochOrder([len(dataset)], seed=1, epoch=1)
        return BlockEpochIterator(
            make_batches=lambda epoch, first: BlockBatches(order, range(first, len(order), 32), len(order)),
            dataset=dataset,
            collate_fn=dataset.collater,
            num_shards=8,
            shard_id=3,
        ), order

    iterator, order = make()
    state = {"version": 2, "epoch": 1, "iterations_in_epoch": 10**9, "shuffle": False}
    iterator.load_state_dict({**state, BLOCKS_SEEN: 8 * 32 * 10**9, ORDER: ORDER_VERSION})
    epoch = iterator.next_epoch_itr()
    first, second = next(epoch), next(epoch)
    where = 8 * 32 * 10**9 + 3 * 32
    assert first == order.addresses(where, where + 32).indices.tolist()
    assert second == order.addresses(where + 8 * 32, where + 9 * 32).indices.tolist()
    assert iterator.state_dict()[BLOCKS_SEEN] == 8 * 32 * (10**9 + 2)
    assert len(iterator) == -(-(10**12) // (8 * 32))


def test_a_position_in_another_order_of_blocks_is_used_with_a_warning(caplog):
    _, state = run_ranks(1, iterations=11)
    assert state[ORDER] == ORDER_VERSION
    make_iterator().load_state_dict(state)
    assert not caplog.messages
    make_iterator().load_state_dict({**state, ORDER: ORDER_VERSION - 1})
    assert "another order of blocks" in caplog.text
