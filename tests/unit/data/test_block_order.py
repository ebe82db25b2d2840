"""The order of an epoch: complete, reproducible, different between epochs, and cut without gaps."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data.block_order import GROUP_SIZE, GROUPS_IN_POOL, EpochOrder, cut_batches, cut_in_parts

POOL = GROUP_SIZE * GROUPS_IN_POOL


def lengths_of(lengths):
    return lambda addresses: lengths[addresses.indices]


def epoch_order(num_blocks, **options):
    """A whole order in arrays."""
    order = EpochOrder(num_blocks, **options)
    return order.addresses(0, len(order))


@pytest.mark.parametrize("num_blocks", [1, 63, GROUP_SIZE * 3 + 5, POOL, 2 * POOL + 777])
@pytest.mark.parametrize("vary", [False, True])
def test_every_block_comes_exactly_once(num_blocks, vary):
    all_lengths = np.random.default_rng(0).integers(1, 512, num_blocks).astype(np.int32)
    order = epoch_order([num_blocks], seed=1, epoch=4, lengths_of=lengths_of(all_lengths) if vary else None)
    assert np.array_equal(np.sort(order.indices), np.arange(num_blocks))
    assert (order.passes == 4).all()


def test_the_order_repeats_for_the_same_epoch_and_differs_for_another_or_another_seed():
    first = epoch_order([1000], seed=1, epoch=1).indices
    assert np.array_equal(first, epoch_order([1000], seed=1, epoch=1).indices)
    for other in (epoch_order([1000], seed=1, epoch=2), epoch_order([1000], seed=2, epoch=1)):
        assert np.mean(other.indices == first) < 0.02


@given(start=st.integers(0, 40_000), length=st.integers(0, 20_000), vary=st.booleans())
@settings(deadline=None, max_examples=20)
def test_any_part_of_an_order_is_the_same_as_in_the_whole(start, length, vary):
    lengths = np.random.default_rng(0).integers(1, 512, 40_000).astype(np.int32)
    options = {"seed": 1, "epoch": 2, "counts": [25_000, 15_000], "lengths_of": lengths_of(lengths) if vary else None}
    whole = epoch_order([30_000, 10_000], **options)
    part = EpochOrder([30_000, 10_000], **options).addresses(start, min(start + length, 40_000))
    assert np.array_equal(part.indices, whole.indices[start : start + length])
    assert np.array_equal(part.passes, whole.passes[start : start + length])


def test_an_order_of_a_trillion_blocks_is_there_at_once_and_remembers_two_pools():
    order = EpochOrder([10**12, 3], seed=1, epoch=3, counts=[10**12 - 5, 8])
    for start in range(5 * 10**11, 5 * 10**11 + 50_000, 100):
        addresses = order.addresses(start, start + 100)
        assert len(np.unique(addresses.indices)) == 100 and addresses.indices.max() < 10**12 + 3
    assert len(order) == 10**12 + 3
    assert sum(len(pool.indices) for pool in order._pools.values()) <= 2 * POOL


def test_blocks_of_several_corpora_are_spread_evenly_over_the_epoch():
    order = epoch_order([3000, 50_000], seed=3, epoch=2, counts=[13_000, 40_000])
    is_first = (order.indices < 3000).reshape(50, -1)  # (parts of the epoch, blocks)
    share, size = 13_000 / 53_000, is_first.shape[1]
    deviations = (is_first.mean(axis=1) - share) / np.sqrt(share * (1 - share) / size)
    assert np.abs(deviations).max() < 4
    assert np.abs(deviations).max() > 1, "too even to be random"


def test_neighbours_have_similar_lengths_but_the_order_is_not_sorted():
    lengths = np.random.default_rng(0).integers(10, 512, 2 * POOL + 999).astype(np.int32)
    order = epoch_order([len(lengths)], seed=1, epoch=1, lengths_of=lengths_of(lengths))
    ordered = lengths[order.indices]
    bounds = cut_batches(ordered, max_tokens=10**9, max_sentences=GROUP_SIZE)
    padded = sum(ordered[a:b].max() * (b - a) for a, b in itertools.pairwise(bounds))
    assert ordered.sum() / padded > 0.98
    means = np.array([ordered[a:b].mean() for a, b in itertools.pairwise(bounds)])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.2


def test_a_corpus_is_seen_whole_before_any_of_its_blocks_repeats():
    num_blocks, counts = [100, 7], [60, 47]
    seen: list[list[tuple[int, int]]] = [[], []]
    for epoch in range(1, 11):
        order = epoch_order(num_blocks, seed=3, epoch=epoch, counts=counts)
        assert len(order.indices) == 107
        for corpus, low, high in ((0, 0, 100), (1, 100, 107)):
            mine = (order.indices >= low) & (order.indices < high)
            assert mine.sum() == counts[corpus]
            seen[corpus] += list(zip(order.passes[mine].tolist(), order.indices[mine].tolist(), strict=True))
    for corpus, visits in enumerate(seen):
        assert len(set(visits)) == len(visits), "a block came twice in one pass"
        whole_passes = len(visits) // num_blocks[corpus]
        assert whole_passes >= 6
        for number in range(1, whole_passes + 1):
            assert sum(pass_ == number for pass_, _ in visits) == num_blocks[corpus]


def test_batches_keep_within_both_limits_and_leave_nothing_out():
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 200, 5000).astype(np.int32)
    bounds = cut_batches(lengths, max_tokens=1000, max_sentences=24)
    assert bounds[0] == 0 and bounds[-1] == len(lengths) and (np.diff(bounds) > 0).all()
    sizes = np.diff(bounds)
    padded = np.array([lengths[a:b].max() * (b - a) for a, b in itertools.pairwise(bounds)])
    assert sizes.max() <= 24 and padded.max() <= 1000
    assert (padded > 800).mean() > 0.5, "the batches are far from full"


def test_a_batch_size_multiple_is_kept_where_the_batch_is_large_enough():
    lengths = np.full(1001, 10, dtype=np.int32)
    sizes = np.diff(cut_batches(lengths, max_tokens=150, max_sentences=None, required_batch_size_multiple=8))
    assert (sizes[:-1] == 8).all() and sizes.sum() == 1001


@given(
    sizes=st.lists(st.integers(0, 40), max_size=6),
    max_tokens=st.integers(60, 400),
    max_sentences=st.none() | st.integers(1, 20),
    multiple=st.sampled_from([1, 4, 8]),
    padded=st.booleans(),
)
@settings(deadline=None)
def test_parts_of_an_order_are_cut_as_the_whole_is(sizes, max_tokens, max_sentences, multiple, padded):
    lengths = np.random.default_rng(sum(sizes)).integers(1, 60, sum(sizes)).astype(np.int32)
    limits = {"max_tokens": max_tokens, "required_batch_size_multiple": multiple, "padded": padded}
    cut = cut_in_parts(np.split(lengths, np.cumsum(sizes)), max_sentences=max_sentences, **limits)
    if max_sentences is not None and max_sentences > multiple:
        max_sentences -= max_sentences % multiple
    assert cut.tolist() == cut_batches(lengths, max_sentences=max_sentences, **limits).tolist()


def test_equal_batches_without_a_token_limit():
    lengths = np.full(10, 512, dtype=np.int32)
    assert cut_batches(lengths, max_tokens=10**9, max_sentences=4).tolist() == [0, 4, 8, 10]
    assert cut_batches(lengths[:8], max_tokens=10**9, max_sentences=4).tolist() == [0, 4, 8]
    assert cut_batches(lengths[:0], max_tokens=10**9, max_sentences=4).tolist() == [0]
