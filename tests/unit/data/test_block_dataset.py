"""What all datasets share: batches cut from the order of an epoch, whole batches in tensors."""

import itertools
import pickle
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch

from roberta_plugin.data import block_dataset
from roberta_plugin.data.block_batches import BlockBatch, num_blocks_before
from roberta_plugin.data.block_dataset import BlockDataset
from roberta_plugin.data.block_order import EpochOrder, KnownOrder, cut_batches
from tests.refusals import refused

ORDER = KnownOrder(np.array([7, 3, 5, 1, 2]), np.array([1, 1, 2, 2, 2]))


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


class Random(Squares):
    """Blocks of many lengths in a random order."""

    def __len__(self):
        return 1000

    def order(self, epoch):
        return EpochOrder([len(self)], seed=1, epoch=epoch, lengths_of=self.lengths_of)

    def lengths(self, indices):
        return (indices * 7919 % 61 + 1).astype(np.int32)


class Equal(Squares):
    """Blocks of one length, too many to look at."""

    are_equal_in_length = True
    longest = 512

    def __len__(self):
        return 10**11

    def order(self, epoch):
        return EpochOrder([len(self)], seed=1, epoch=epoch)

    def lengths(self, indices):
        raise AssertionError("nobody needs to know")


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize(
    "limits",
    [
        {"max_sentences": 7},
        {"max_tokens": 700},
        {"max_tokens": 700, "max_sentences": 11},
        {"max_tokens": 10**6, "max_sentences": 11},
        {"max_tokens": 700, "required_batch_size_multiple": 4},
    ],
    ids=str,
)
def test_batches_are_those_of_the_plain_reference_and_go_on_from_any_block(monkeypatch, limits, pack):
    """The reference has the whole order in arrays, and cuts it at once."""
    monkeypatch.setattr(block_dataset, "_BLOCKS_IN_WINDOW", 100)
    dataset = Random()
    dataset.pack = pack
    order = dataset.order(3)
    indices, passes = order.addresses(0, len(order))
    multiple = 1 if pack else limits.get("required_batch_size_multiple", 1)
    lengths = dataset.lengths(indices)
    for first in (0, 1, 777, 999):
        bounds = first + cut_batches(
            lengths[first:],
            max_tokens=limits.get("max_tokens", 10**9),
            max_sentences=limits.get("max_sentences"),
            required_batch_size_multiple=multiple,
            padded=not pack,
        )
        found = dataset.batches(3, first_block=first, **limits)
        expected = [list(zip(passes[a:b], indices[a:b], strict=True)) for a, b in itertools.pairwise(bounds)]
        assert [list(batch) for batch in found] == expected
        assert len(found) == len(expected) > (3 if first < 900 else 0)
        for number in (0, 2, len(found), len(found) + 5):
            assert num_blocks_before(found, number) == sum(len(batch) for batch in expected[:number])


def test_batches_of_equal_blocks_are_not_listed_whatever_limits_them():
    for limits, size in (
        ({"max_sentences": 32}, 32),
        ({"max_tokens": 512 * 9 + 511}, 9),
        ({"max_tokens": 512 * 9, "required_batch_size_multiple": 8}, 8),
        ({"max_tokens": 512 * 9, "max_sentences": 4}, 4),
    ):
        batches = Equal().batches(1, first_block=5, **limits)
        assert len(batches) == -(-(10**11 - 5) // size)
        assert len(batches[0]) == len(batches[10**9]) == size
        assert 0 < len(batches[-1]) <= size
    packed = Equal()
    packed.pack, packed.pad_to_multiple, packed.longest = True, 128, 500
    for max_tokens, size in ((4096, 8), (4100, 8), (4000, 7), (20_096, 40)):
        assert len(packed.batches(1, max_tokens=max_tokens)[10**9]) == size
        assert -(-size * 500 // 128) * 128 <= max_tokens


def test_impossible_limits_are_refused_by_name():
    refused("--batch-size, --max-tokens", Equal().batches, 1)
    for dataset in (Equal(), Random()):
        longest = dataset.longest
        message = rf"--max-tokens .{longest - 1}. is smaller than the longest block .{longest} tokens"
        refused(message, dataset.batches, 1, max_tokens=longest - 1)


def test_arrays_become_tensors_at_any_depth_and_the_rest_stays():
    batch = Squares().__getitems__(BlockBatch(ORDER, 0, 3))
    assert torch.equal(batch["inner"]["square"], torch.tensor([49, 9, 25]))
    assert batch["pass"].tolist() == [1, 1, 2]
    assert batch["size"] == 3
    assert Squares().__getitems__([]) == {}


def test_a_plain_index_is_a_block_of_the_epoch_at_hand_and_sizes_are_lengths():
    dataset = Squares()
    dataset.set_epoch(4)
    assert dataset[6]["pass"].tolist() == [40]
    joined = dataset.collater([dataset[6], dataset[(3, 2)]])
    assert joined["id"].tolist() == [6, 2]
    assert joined["pass"].tolist() == [40, 3]
    assert dataset.collater(joined) is joined
    assert dataset.sizes.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert dataset.num_tokens(4) == dataset.size(4) == 5
    assert dataset.ordered_indices().tolist() == list(range(9))


class ManyTypes(Squares):
    """Batches with all that may be in one."""

    def make_batch(self, passes, indices):
        large = np.array([2**31, -(2**31) - 1])
        arrays = {"large": large, "small": large // 2, "float": np.array([0.5]), "narrow": np.array([7], np.int32)}
        return {"id": indices, "empty": np.empty(0, np.int64), "inner": arrays, "number": 3, "flag": True}


def test_a_batch_of_a_worker_is_the_same_as_one_made_here():
    dataset = ManyTypes()
    here = dataset.__getitems__([(1, 5), (1, 6)])
    loader = torch.utils.data.DataLoader(
        dataset, collate_fn=dataset.collater, batch_sampler=[[(1, 5), (1, 6)], []], num_workers=1
    )
    there, nothing = loader
    assert nothing == {}
    assert there.keys() == here.keys() and there["inner"].keys() == here["inner"].keys()
    for mine, theirs in itertools.chain(
        zip(here.values(), there.values(), strict=True),
        zip(here["inner"].values(), there["inner"].values(), strict=True),
    ):
        if isinstance(mine, torch.Tensor):
            assert mine.dtype == theirs.dtype and torch.equal(mine, theirs)
        elif not isinstance(mine, dict):
            assert mine == theirs
    assert {value.dtype for value in there["inner"].values()} == {torch.int64, torch.int32, torch.float64}


def test_a_batch_travels_as_plain_bytes_of_half_the_width_and_in_no_shared_memory(monkeypatch):
    dataset = Squares()
    monkeypatch.setattr(block_dataset, "get_worker_info", object)
    sent = bytes(ForkingPickler.dumps(dataset.__getitems__([(1, index) for index in range(10_000)])))
    assert len(sent) < 3 * 10_000 * 4 + 2000
    monkeypatch.undo()
    assert torch.equal(pickle.loads(sent)["id"], torch.arange(10_000))
