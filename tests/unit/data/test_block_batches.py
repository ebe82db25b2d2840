"""Batches that are made when they are asked for, and what travels to a data-loader worker."""

import pickle

import numpy as np
import pytest

from roberta_plugin.data.block_batches import BlockBatch, BlockBatches, LazySequence, num_blocks_before
from roberta_plugin.data.block_order import KnownOrder

ORDER = KnownOrder(np.array([7, 3, 5, 1, 2]), np.array([1, 1, 2, 2, 2]))


def test_a_batch_has_the_addresses_of_its_part_of_the_order():
    batch = BlockBatch(ORDER, 1, 4)
    assert len(batch) == 3
    assert list(batch) == [(1, 3), (2, 5), (2, 1)]


def test_a_worker_gets_the_batch_alone_and_not_the_order_of_the_epoch():
    long = KnownOrder(np.arange(10**6), np.ones(10**6, dtype=np.int64))
    sent = pickle.dumps(BlockBatch(long, 500, 510))
    assert len(sent) < 2000
    assert list(pickle.loads(sent)) == [(1, index) for index in range(500, 510)]


@pytest.mark.parametrize("starts", [range(0, 5, 2), np.array([0, 2, 4])], ids=["range", "array"])
def test_batches_follow_one_another_and_are_counted(starts):
    batches = BlockBatches(ORDER, starts, 5)
    assert [list(batch) for batch in batches] == [[(1, 7), (1, 3)], [(2, 5), (2, 1)], [(2, 2)]]
    assert [len(batch) for batch in batches[1:]] == [2, 1]
    assert list(batches[-1]) == [(2, 2)]
    assert [num_blocks_before(batches, number) for number in range(5)] == [0, 2, 4, 5, 5]
    assert [num_blocks_before([[1, 2], [3]], number) for number in range(4)] == [0, 2, 3, 3]


def test_no_blocks_make_no_batches():
    batches = BlockBatches(ORDER, range(5, 5, 2), 5)
    assert len(batches) == 0 == num_blocks_before(batches, 3)
    assert list(batches) == []


def test_a_lazy_sequence_and_its_slices_make_what_is_asked_for_alone():
    made = []

    def make(number):
        made.append(number)
        return number * number

    squares = LazySequence(make, range(10**12))
    rest = squares[10**9 :]
    assert len(rest) == 10**12 - 10**9 and not made
    assert (rest[0], squares[3], squares[-1]) == (10**18, 9, (10**12 - 1) ** 2)
    assert made == [10**9, 3, 10**12 - 1]
    assert list(squares[2:12:3]) == [4, 25, 64, 121]
    with pytest.raises(IndexError):
        squares[10**12]
