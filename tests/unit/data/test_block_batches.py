"""Batches that are made on access, their way to a data-loader worker, and the same updates for every number of ranks."""

import itertools
import pickle
import re

import numpy as np
import pytest

from roberta_plugin.data.block_batches import BlockBatch, BlockBatches, LazySequence, UpdateStarts, num_blocks_before
from roberta_plugin.data.block_order import KnownOrder
from roberta_plugin.launch.batch_size import plan_batch

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


def batches_of(start, stop, *, blocks, batches):
    """Ranges of blocks, as the batches have them."""
    starts = [*UpdateStarts(start, stop, blocks=blocks, batches=batches), stop]
    return [range(first, last) for first, last in itertools.pairwise(starts)]


@pytest.mark.parametrize("effective", [64, 41, 100])
@pytest.mark.parametrize("most", [2, 5, 32])
@pytest.mark.parametrize("start", [0, 128])
def test_for_every_world_size_each_update_has_the_same_blocks(effective, most, start):
    stop = start + 3 * effective + 17
    updates = [range(first, min(first + effective, stop)) for first in range(start, stop, effective)]
    for ranks in range(1, 41):
        plan = plan_batch(effective, num_gpus=ranks, most_per_gpu=most, may_differ=True)
        count = ranks * plan.update_freq
        found = batches_of(start, stop, blocks=effective, batches=count)
        for number, expected in enumerate(updates):
            of_update = found[number * count : (number + 1) * count]
            assert [block for batch in of_update for block in batch] == list(expected), (ranks, number)
        full = found[: 3 * count]
        assert len(full) == 3 * count and all(0 < len(batch) <= plan.per_gpu <= most for batch in full)
        assert len(found[3 * count :]) <= count
        for update in range(3):
            loads = [
                sum(len(batch) for batch in full[update * count + rank : (update + 1) * count : ranks])
                for rank in range(ranks)
            ]
            assert max(loads) == -(-effective // ranks) and max(loads) - min(loads) <= 1


def test_an_epoch_of_a_trillion_blocks_costs_nothing():
    starts = UpdateStarts(5, 10**12, blocks=8192, batches=1016)
    assert len(starts) == (10**12 - 5) // 8192 * 1016 + 504  # 4,091 blocks are left: 64 batches of 9, the others of 8
    assert starts[1016 * 10**6] == 5 + 8192 * 10**6
    assert [starts[i] - 5 for i in (0, 1, 63, 64, 65, 1015)] == [0, 9, 567, 576, 584, 8184]
    assert starts[-1] == starts[len(starts) - 1] < 10**12
    assert starts[1:3] == [14, 23]
    with pytest.raises(IndexError):
        starts[len(starts)]


def test_the_example_of_the_docstring_holds():
    assert list(UpdateStarts(0, 12, blocks=7, batches=3)) == [0, 3, 5, 7, 10]
    assert list(UpdateStarts(12, 12, blocks=7, batches=3)) == []


def test_a_batch_without_blocks_is_refused():
    with pytest.raises(ValueError, match=re.escape("--update-sequences 7 cannot be shared out among 8 batches")):
        UpdateStarts(0, 12, blocks=7, batches=8)
