"""The order of an epoch, shares of corpora, batches made on access, the same updates for every number of ranks."""

import itertools
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data.batches import PREDICTED_MULTIPLE, SEQUENCES_MULTIPLE, fill_rows, pack, pad_width
from roberta_plugin.data.block_batches import BlockBatch, BlockBatches, LazySequence, UpdateStarts, num_blocks_before
from roberta_plugin.data.block_order import (
    GROUP_SIZE,
    GROUPS_IN_POOL,
    EpochOrder,
    KnownOrder,
    cut_batches,
    cut_in_parts,
)
from roberta_plugin.data.mixture import Corpus, blocks_to_take, data_folders, parse_corpora, share_out, times_read
from roberta_plugin.data.mmap_tokens import check_ranges
from roberta_plugin.launch.batch_size import plan_batch
from tests.refusals import refused
from tests.tiny_tokens import PAD, masker_of, write_items

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


def test_batches_keep_within_their_limits_and_leave_nothing_out():
    lengths = np.random.default_rng(1).integers(1, 200, 5000).astype(np.int32)
    bounds = cut_batches(lengths, max_tokens=1000, max_sentences=24)
    assert bounds[0] == 0 and bounds[-1] == len(lengths) and (np.diff(bounds) > 0).all()
    sizes = np.diff(bounds)
    padded = np.array([lengths[a:b].max() * (b - a) for a, b in itertools.pairwise(bounds)])
    assert sizes.max() <= 24 and padded.max() <= 1000
    assert (padded > 800).mean() > 0.5, "the batches are far from full"
    few = np.array([4, 3, 5, 2, 2], dtype=np.int32)  # of the docstring; two of 5 are just 10
    for is_padded, expected in ((True, [0, 2, 4, 5]), (False, [0, 2, 5])):
        assert cut_batches(few, max_tokens=10, max_sentences=None, padded=is_padded).tolist() == expected
    equal = np.full(1001, 10, dtype=np.int32)
    sizes = np.diff(cut_batches(equal, max_tokens=150, max_sentences=None, required_batch_size_multiple=8))
    assert (sizes[:-1] == 8).all() and sizes.sum() == 1001
    for number, expected in ((10, [0, 4, 8, 10]), (8, [0, 4, 8]), (0, [0])):  # without a limit of tokens
        assert cut_batches(equal[:number], max_tokens=10**9, max_sentences=4).tolist() == expected


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


def test_folders_have_weights_turns_and_colons(tmp_path):
    assert parse_corpora("data-bin") == [Corpus("data-bin", None)]
    assert parse_corpora("a@3, b@0.5") == [Corpus("a", 3.0), Corpus("b", 0.5)]
    assert parse_corpora("a,b") == [Corpus("a", None), Corpus("b", None)]
    assert [str(folder) for folder in data_folders("a@2,b@1:c:a")] == ["a", "b", "c"], "each once"
    folder = tmp_path / "2026-11-21T20:30:00"
    assert len(data_folders(str(folder))) == 3
    folder.mkdir()
    assert data_folders(str(folder)) == [folder]


def test_a_path_that_exists_is_a_path_whatever_is_in_it(tmp_path):
    for name in ("me@host", "one,two", "a@3"):
        (tmp_path / name).mkdir()
    assert parse_corpora(f"{tmp_path}/me@host") == [Corpus(f"{tmp_path}/me@host", None)]
    assert parse_corpora(f"{tmp_path}/me@host@3,{tmp_path}/b@1")[0] == Corpus(f"{tmp_path}/me@host", 3.0)
    assert parse_corpora(f"{tmp_path}/one,two") == [Corpus(f"{tmp_path}/one,two", None)]
    assert parse_corpora(f"{tmp_path}/a@3") == [Corpus(f"{tmp_path}/a@3", None)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a,,b", "empty folder"),
        ("a@x,b@1", "the weight 'x'"),
        ("a@-1,b@1", "positive number"),
        ("a@nan,b@1", "positive number"),
        ("a@1,b", "some folders only"),
        ("a,b,a", "twice"),
        ("a,a/", "twice"),
        ("a@1,./a@3", "twice"),
        ("me@host/no", "'me@host/no', which is neither a folder that exists nor FOLDER@WEIGHT"),
    ],
)
def test_faulty_mixtures_are_refused(data, message):
    refused(message, parse_corpora, data)


def test_shares_follow_sizes_weights_or_the_formula_and_keep_the_length_of_an_epoch():
    assert blocks_to_take([100, 7, 1]) == [100, 7, 1]
    assert blocks_to_take([900, 100], weights=[1, 1]) == [500, 500]
    counts = blocks_to_take([333, 333, 334], weights=[2, 2, 3])
    assert sum(counts) == 1000
    assert all(abs(count - 1000 * weight / 7) < 1 for count, weight in zip(counts, (2, 2, 3), strict=True))
    counts = blocks_to_take([10_000, 100], alpha=0.3)
    assert counts[1] == pytest.approx(100**0.3 / (10_000**0.3 + 100**0.3) * 10_100, abs=1)
    assert blocks_to_take([10_000, 100], alpha=0.0) == [5050, 5050]


@pytest.mark.parametrize(
    ("data", "alpha", "expected"),
    [
        ("a", 1.0, {"a": 1.0}),
        ("a,b/", 1.0, {"a": 1.0, "b": 1.0}),
        ("a:b", 1.0, {"a": 1.0, "b": 1.0}),
        ("a@3,b@1", 1.0, {"a": 0.75 * 100 / 90, "b": 0.25 * 100 / 10}),
        ("a,b", 0.5, {"a": 0.75 * 100 / 90, "b": 0.25 * 100 / 10}),
        ("a@1,b@1:a", 1.0, {"a": 50 / 90 + 1, "b": 5.0}),
    ],
)
def test_a_mixture_reads_its_texts_as_often_as_their_shares_say(data, alpha, expected):
    found = times_read(data, {Path("a"): 90, Path("b"): 10}, alpha=alpha)
    assert {str(folder): times for folder, times in found.items()} == pytest.approx(expected, rel=0.02)


def test_what_rounding_leaves_goes_to_the_largest_remainders():
    assert share_out(10, [0.49, 0.08, 0.43]) == [5, 1, 4]  # 4.9, 0.8, 4.3
    assert share_out(10, [0.43, 0.08, 0.49]) == [4, 1, 5]
    assert share_out(10, [1, 1, 1]) == [4, 3, 3], "of equal ones the first"


def test_no_corpus_is_left_out_for_its_weight_and_none_without_blocks_is_taken():
    assert blocks_to_take([500, 10, 20], weights=[1, 1e-9, 1e-9]) == [528, 1, 1]
    assert blocks_to_take([1, 1], weights=[1e-9, 1]) == [1, 1]
    refused("Corpus 2 of 2 has no blocks", blocks_to_take, [1, 0])


ORDER = KnownOrder(np.array([7, 3, 5, 1, 2]), np.array([1, 1, 2, 2, 2]))


def test_a_worker_gets_the_batch_alone_and_not_the_order_of_the_epoch():
    long = KnownOrder(np.arange(10**6), np.ones(10**6, dtype=np.int64))
    sent = pickle.dumps(BlockBatch(long, 500, 510))
    assert len(sent) < 2000
    assert list(pickle.loads(sent)) == [(1, index) for index in range(500, 510)]


@pytest.mark.parametrize("starts", [range(0, 5, 2), np.array([0, 2, 4])], ids=["range", "array"])
def test_batches_follow_one_another_and_are_counted(starts):
    batches = BlockBatches(ORDER, starts, len(ORDER))
    assert [list(batch) for batch in batches] == [[(1, 7), (1, 3)], [(2, 5), (2, 1)], [(2, 2)]]
    assert [len(batch) for batch in batches[1:]] == [2, 1]
    assert list(batches[-1]) == [(2, 2)]
    assert [num_blocks_before(batches, number) for number in range(5)] == [0, 2, 4, 5, 5]
    assert [num_blocks_before([[1, 2], [3]], number) for number in range(4)] == [0, 2, 3, 3]
    none = BlockBatches(ORDER, starts[:0], 5)
    assert len(none) == 0 == num_blocks_before(none, 3) and list(none) == []


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
    assert list(UpdateStarts(0, 12, blocks=7, batches=3)) == [0, 3, 5, 7, 10]  # the example of the docstring
    assert list(UpdateStarts(12, 12, blocks=7, batches=3)) == []
    message = re.escape("--update-sequences 7 cannot be shared out among 8 batches")
    refused(message, UpdateStarts, 0, 12, blocks=7, batches=8)


@pytest.mark.parametrize(("longest", "multiple", "width"), [(7, 1, 8), (7, 8, 8), (8, 8, 16), (0, 1, 1)])
def test_a_batch_is_as_wide_as_its_longest_block_and_s(longest, multiple, width):
    assert pad_width(longest, multiple=multiple) == width


def test_rows_get_their_ranges():
    batch = np.ones((3, 5), dtype=np.int64)
    tokens = np.arange(100, 120, dtype=np.uint16)
    fill_rows(batch, tokens, rows=np.array([2, 0]), starts=np.array([3, 10]), lengths=np.array([4, 2]))
    assert batch.tolist() == [[1, 110, 111, 1, 1], [1, 1, 1, 1, 1], [1, 103, 104, 105, 106]]


@pytest.mark.parametrize("bad", [50, -1])
def test_an_id_outside_the_vocabulary_is_refused(tmp_path, bad):
    source = write_items(tmp_path / "train", [[5, 2], [6, bad, 2]], np.int32)
    batch = np.array([[0, 5, 2, 1], [0, 6, bad, 2]])
    where = {"starts": np.array([0, 2]), "lengths": np.array([2, 3])}
    refused(
        rf"train\.bin holds the token id {bad} in item 1 ", check_ranges, batch, vocab_size=50, source=source, **where
    )
    check_ranges(np.abs(batch), vocab_size=51, source=source, **where)


def make_masked(lengths, seed=0):
    tokens = np.random.default_rng(seed).integers(4, 59, (len(lengths), max(lengths)))
    tokens[:, 0] = 0
    for row, length in enumerate(lengths):
        tokens[row, length:] = PAD
    count = len(lengths)
    return masker_of(60).mask(tokens, seed=1, passes=np.ones(count, dtype=np.int64), indices=np.arange(count))


@pytest.mark.parametrize("multiple", [1, 64, 256])
@pytest.mark.parametrize("lengths", [(30, 7, 1, 19, 30), (64,), (32, 32), (2, 1, 1)], ids=str)
def test_every_block_is_there_in_its_place(lengths, multiple):
    masked = make_masked(lengths)
    row = pack(masked, np.array(lengths), pad_id=PAD, multiple=multiple, max_seqlen=64)
    assert row.tokens.shape == row.targets.shape == row.positions.shape
    assert row.tokens.shape[1] % multiple == 0
    assert row.tokens.shape[1] - sum(lengths) < multiple
    for block, length in enumerate(lengths):
        start, stop = row.cu_seqlens[block : block + 2]
        assert stop - start == length
        assert row.tokens[0, start:stop].tolist() == masked.tokens[block, :length].tolist()
        assert row.targets[0, start:stop].tolist() == masked.targets[block, :length].tolist()
        assert row.positions[0, start:stop].tolist() == list(range(length))
    assert np.diff(row.cu_seqlens).min() >= 0 and np.diff(row.cu_seqlens).max() <= 64, (
        "a sequence is longer than it may be"
    )
    assert row.cu_seqlens[-1] == row.tokens.shape[1]
    assert (row.tokens[0, sum(lengths) :] == PAD).all()
    assert (row.targets[0, sum(lengths) :] == PAD).all()


@pytest.mark.parametrize("multiple", [1, 64])
def test_what_is_predicted_belongs_to_its_block(multiple):
    lengths = (30, 7, 1, 19, 30)
    masked = make_masked(lengths)
    row = pack(masked, np.array(lengths), pad_id=PAD, multiple=multiple, max_seqlen=64)
    is_meant = row.labels[0] != PAD
    assert is_meant.sum() == masked.num_predicted > 5
    assert row.predicted[0, is_meant].tolist() == np.flatnonzero(row.targets[0] != PAD).tolist()
    assert row.labels[0, is_meant].tolist() == row.targets[0, row.predicted[0, is_meant]].tolist()
    assert len(row.cu_seqlens_q) == len(row.cu_seqlens)
    for block in range(len(lengths)):
        mine = slice(*row.cu_seqlens_q[block : block + 2])
        inside = row.predicted[0, mine][row.labels[0, mine] != PAD]
        assert ((inside >= row.cu_seqlens[block]) & (inside < row.cu_seqlens[block + 1])).all()
    assert row.cu_seqlens_q[len(lengths)] == row.predicted.shape[1], "the room left belongs to the last block"


def test_sizes_are_rounded_up_where_shapes_are_to_stay():
    shapes = set()
    for seed in range(20):
        lengths = np.random.default_rng(seed).integers(5, 60, 20)
        row = pack(make_masked(lengths, seed), lengths, pad_id=PAD, multiple=2048, max_seqlen=512)
        shapes.add((row.tokens.shape, row.cu_seqlens.shape, row.predicted.shape))
    assert shapes == {((1, 2048), (SEQUENCES_MULTIPLE + 1,), (1, PREDICTED_MULTIPLE))}
