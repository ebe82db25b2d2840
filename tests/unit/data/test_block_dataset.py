"""What all datasets share: addresses of blocks, whole batches, and what travels to a data-loader worker."""

import pickle

import numpy as np
import torch

from roberta_plugin.data.block_dataset import BlockBatch, BlockDataset
from roberta_plugin.data.block_order import EpochOrder

ORDER = EpochOrder(np.array([7, 3, 5, 1, 2]), np.array([1, 1, 2, 2, 2]))


class Squares(BlockDataset):
    """A block's content is the square of its index."""

    def __len__(self):
        return 9

    def order(self, epoch):
        return ORDER

    def lengths(self, indices):
        return (indices + 1).astype(np.int32)

    def visit(self, epoch):
        return 10 * epoch

    def make_batch(self, passes, indices):
        return {
            "id": np.array(indices),
            "pass": np.array(passes),
            "inner": {"square": indices**2},
            "size": len(indices),
        }


def test_a_batch_has_the_addresses_of_its_part_of_the_order():
    batch = BlockBatch(ORDER, 1, 4)
    assert len(batch) == 3
    assert list(batch) == [(1, 3), (2, 5), (2, 1)]


def test_batches_are_cut_from_the_order_and_go_on_from_any_block():
    dataset = Squares()
    assert [list(batch) for batch in dataset.batches(1, max_sentences=3)] == [
        [(1, 7), (1, 3), (2, 5)],
        [(2, 1), (2, 2)],
    ]
    assert [list(batch) for batch in dataset.batches(1, first_block=2, max_sentences=2)] == [[(2, 5), (2, 1)], [(2, 2)]]


def test_a_worker_gets_the_batch_alone_and_not_the_order_of_the_epoch():
    long = EpochOrder(np.arange(10**6), np.ones(10**6, dtype=np.int64))
    sent = pickle.dumps(BlockBatch(long, 500, 510))
    assert len(sent) < 2000
    assert list(pickle.loads(sent)) == [(1, index) for index in range(500, 510)]


def test_arrays_become_tensors_at_any_depth_and_the_rest_stays():
    batch = Squares().__getitems__(BlockBatch(ORDER, 0, 3))
    assert torch.equal(batch["inner"]["square"], torch.tensor([49, 9, 25]))
    assert batch["pass"].tolist() == [1, 1, 2]
    assert batch["size"] == 3
    assert Squares().__getitems__([]) == {}


def test_a_plain_index_is_a_block_of_the_epoch_at_hand():
    dataset = Squares()
    dataset.set_epoch(4)
    assert dataset[6]["pass"].tolist() == [40]
    joined = dataset.collater([dataset[6], dataset[(3, 2)]])
    assert joined["id"].tolist() == [6, 2]
    assert joined["pass"].tolist() == [40, 3]
    assert dataset.collater(joined) is joined


def test_sizes_are_lengths():
    dataset = Squares()
    assert dataset.sizes.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert dataset.num_tokens(4) == dataset.size(4) == 5
    assert dataset.ordered_indices().tolist() == list(range(9))
