"""Each epoch shows every block once, for any number of ranks, and also after going on with another number."""

import itertools
import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from fairseq.data.iterators import GroupedIterator
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from roberta_plugin.data.block_batches import BlockBatches, UpdateStarts
from roberta_plugin.data.block_order import ORDER_VERSION, EpochOrder, KnownOrder, cut_batches
from roberta_plugin.fairseq_workarounds.epoch_iterator import BEGUN, BLOCKS_SEEN, EPOCH, ORDER, BlockEpochIterator
from roberta_plugin.launch.batch_size import plan_batch

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

    def order(self, epoch):
        return EpochOrder([NUM_BLOCKS], seed=5, epoch=epoch, lengths_of=self.lengths_of)

    def lengths_of(self, addresses):
        return LENGTHS[addresses.indices]


def order_of(epoch, num_blocks=NUM_BLOCKS):
    order = EpochOrder([num_blocks], seed=5, epoch=epoch, lengths_of=lambda addresses: LENGTHS[addresses.indices])
    return order.addresses(0, num_blocks).indices


def make_iterator(
    *, rank=0, ranks=1, batch_size=4, max_tokens=10**9, epoch=1, num_blocks=NUM_BLOCKS, of_update=None, **options
):
    """`of_update`: blocks of an update on all ranks, for --update-sequences instead of a batch size."""

    def make_batches(epoch, first_block):
        order = order_of(epoch, num_blocks)[first_block:]
        if of_update is not None:
            num_batches = ranks * options["update_freq"](epoch)
            starts = list(UpdateStarts(0, len(order), blocks=of_update, batches=num_batches))
            return [order[a:b].tolist() for a, b in itertools.pairwise([*starts, len(order)])]
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
        **options,
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


def test_a_state_of_fairseqs_own_iterator_keeps_our_order_also_when_resumed_again():
    theirs = {"version": 2, "epoch": 1, "iterations_in_epoch": 11, "shuffle": True}
    expected = list(make_iterator().next_epoch_itr())
    resumed = make_iterator()
    resumed.load_state_dict(theirs)
    epoch = resumed.next_epoch_itr()
    assert (epoch.n, len(epoch)) == (11, len(expected))
    rest = [next(epoch) for _ in range(7)]
    again = make_iterator()
    again.load_state_dict(resumed.state_dict())
    assert rest + list(again.next_epoch_itr()) == expected[11:]


def test_a_state_behind_the_end_of_the_epoch_begins_the_next_one():
    """As of fairseq's iterator with smaller batches, or after the data have shrunk."""
    for state in ({"iterations_in_epoch": 1000, "shuffle": True}, {"iterations_in_epoch": 9, BLOCKS_SEEN: NUM_BLOCKS}):
        iterator = make_iterator()
        iterator.load_state_dict({"version": 2, "epoch": 3, **state})
        assert Counter(itertools.chain(*iterator.next_epoch_itr())) == Counter(range(NUM_BLOCKS))
        assert iterator.epoch == 4


class Shape(NamedTuple):
    """How a job cuts an epoch, and how many updates it makes before it is stopped (None: none)."""

    ranks: int
    batch_size: int
    update_freq: int
    updates: int | None = None


def run_job(shape, *, state=None, num_blocks, skip_remainder=False, **limits):
    """One epoch as `fairseq_cli.train` goes through it, on all ranks, from `state` on.

    Returns the updates (for each, the batches of every rank), the state at the end and whether the epoch ended; what
    ranks must agree on for a run not to hang is checked.
    """
    updates, ends = [], []
    for rank in range(shape.ranks):
        iterator = make_iterator(
            rank=rank,
            ranks=shape.ranks,
            batch_size=shape.batch_size,
            num_blocks=num_blocks,
            skip_remainder_batch=skip_remainder,
            update_freq=lambda epoch: shape.update_freq,
            **limits,
        )
        if state is not None:
            iterator.load_state_dict(state)
        batches = iterator.next_epoch_itr()
        grouped = GroupedIterator(batches, shape.update_freq, skip_remainder_batch=skip_remainder)
        begun_at, mine = grouped.n, []
        for number, group in enumerate(grouped):
            mine.append(group)
            assert grouped.has_next() != iterator.end_of_epoch()
            if number + 1 == shape.updates:
                break
        updates.append(mine)
        ends.append((iterator.state_dict(), grouped.has_next(), iterator.epoch, begun_at, len(grouped)))
        assert begun_at + len(mine) == grouped.n
    assert all(end[1:] == ends[0][1:] for end in ends)
    if ends[0][1]:
        assert all(end == ends[0] for end in ends)
    return list(zip(*updates, strict=True)), ends[0][0], not ends[0][1]


def blocks_of(updates):
    return [block for ranks in updates for group in ranks for batch in group for block in batch]


shapes = st.builds(
    Shape,
    ranks=st.integers(1, 5),
    batch_size=st.integers(1, 5),
    update_freq=st.integers(1, 5),
    updates=st.integers(1, 4),
)


@settings(max_examples=40, deadline=None)
@given(
    jobs=st.lists(shapes, min_size=1, max_size=4),
    num_blocks=st.integers(1, NUM_BLOCKS),
    max_tokens=st.sampled_from([10**9, 200]),
)
def test_every_block_comes_once_whatever_changes_in_mid_epoch(jobs, num_blocks, max_tokens):
    """Ranks, batch size and update_freq change at every resume; the last job runs to the end of the epoch."""
    state, seen, ended = None, [], False
    options = {"num_blocks": num_blocks, "max_tokens": max_tokens}
    for job in jobs:
        updates, state, ended = run_job(job, state=state, **options)
        seen += blocks_of(updates)
        if ended:
            break
        assert state[BLOCKS_SEEN] == len(seen)
        assert Counter(seen) == Counter(order_of(1, num_blocks)[: len(seen)].tolist())
    assume(len(seen) < num_blocks or len(jobs) > 1)
    event(f"jobs: {len(jobs)}, ended before the last: {ended}")
    if not ended:
        updates, state, ended = run_job(jobs[0]._replace(updates=None), state=state, **options)
        seen += blocks_of(updates)
    assert ended
    assert Counter(seen) == Counter(range(num_blocks))
    assert (state["epoch"], state["iterations_in_epoch"], state[BLOCKS_SEEN]) == (2, 0, 0)


@settings(max_examples=25, deadline=None)
@given(first=shapes, second=shapes, num_blocks=st.integers(60, NUM_BLOCKS))
def test_the_rest_takes_as_many_updates_as_its_batches_need(first, second, num_blocks):
    updates, state, ended = run_job(first, num_blocks=num_blocks)
    rest = num_blocks - len(blocks_of(updates))
    assert ended == (rest == 0)
    assume(not ended)
    updates, _, _ = run_job(second._replace(updates=None), state=state, num_blocks=num_blocks)
    iterations = math.ceil(math.ceil(rest / second.batch_size) / second.ranks)
    assert len(updates) == math.ceil(iterations / second.update_freq)


@settings(max_examples=25, deadline=None)
@given(first=shapes, second=shapes, num_blocks=st.integers(40, 130))
def test_skip_remainder_batch_drops_less_than_an_update_after_a_resume_too(first, second, num_blocks):
    options = {"num_blocks": num_blocks, "skip_remainder": True}
    largest = max((shape.update_freq + 1) * shape.ranks * shape.batch_size for shape in (first, second))
    assume(num_blocks >= largest)  # fairseq fails at an epoch without an update
    updates, state, ended = run_job(first, **options)
    seen = blocks_of(updates)
    assume(not ended)
    updates, state, ended = run_job(second._replace(updates=None), state=state, **options)
    assert ended
    if state["epoch"] == 3:
        event("the rest was less than an update of the second job")
        assert num_blocks - len(seen) <= largest
        seen = []
    rest = num_blocks - len(seen)
    seen += blocks_of(updates)
    assert max(Counter(seen).values()) == 1
    assert rest - len(blocks_of(updates)) <= (second.update_freq + 1) * second.ranks * second.batch_size
    for ranks in updates:
        assert all(len(group) == second.update_freq and all(group) for group in ranks)


@settings(max_examples=25, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.integers(1, 9), st.integers(2, 6), st.integers(1, 3)), min_size=2, max_size=4),
    num_blocks=st.integers(40, NUM_BLOCKS),
    of_update=st.integers(9, 40),
)
def test_updates_stay_the_same_whatever_the_number_of_ranks_becomes(jobs, num_blocks, of_update):
    """Jobs of (ranks, largest batch, updates) with --update-sequences; the last one runs to the end of the epoch."""
    updates, state, ended = [], None, False
    for number, (ranks, most, stop_after) in enumerate(jobs):
        plan = plan_batch(of_update, num_gpus=ranks, most_per_gpu=most, may_differ=True)
        stop = None if number + 1 == len(jobs) else stop_after
        shape = Shape(ranks=ranks, batch_size=plan.per_gpu, update_freq=plan.update_freq, updates=stop)
        done, state, ended = run_job(shape, state=state, num_blocks=num_blocks, of_update=of_update)
        updates += [blocks_of([ranks]) for ranks in done]
        if ended:
            break
    assert ended
    order = order_of(1, num_blocks).tolist()
    expected = [order[first : first + of_update] for first in range(0, num_blocks, of_update)]
    assert [sorted(update) for update in updates] == [sorted(update) for update in expected]


def gradient_of_trainer(ranks, *, gradients, tokens):
    """What `fairseq.trainer.Trainer.train_step` makes of an update: `ranks` has the batches of each."""
    dummy = [0]
    gradient, total = np.zeros(gradients.shape[1]), 0.0
    for group in ranks:
        sample_size = 0.0
        for batch in group:
            is_dummy = len(batch) == 0
            sample_size += float(tokens[dummy if is_dummy else batch].sum())
            gradient += 0 if is_dummy else gradients[batch].sum(axis=0)
        if is_dummy:  # the last one decides
            sample_size = 0.0
        total += sample_size
    return gradient / total


@settings(max_examples=40, deadline=None)
@given(
    first=shapes,
    second=shapes,
    num_blocks=st.integers(60, NUM_BLOCKS),
    max_tokens=st.sampled_from([10**9, 200]),
    of_update=st.sampled_from([None, 25, 33]),
)
def test_every_update_has_the_gradient_of_its_blocks(first, second, num_blocks, max_tokens, of_update):
    """By fairseq's arithmetic with its dummy batches, against the sum over blocks in float64."""
    rng = np.random.default_rng(1)
    gradients, tokens = rng.normal(size=(num_blocks, 3)), rng.integers(5, 60, num_blocks)
    options = {"num_blocks": num_blocks, "max_tokens": max_tokens, "of_update": of_update}
    updates, state, ended = run_job(first, **options)
    assume(not ended)
    updates += run_job(second._replace(updates=None), state=state, **options)[0]
    for ranks in updates:
        blocks = blocks_of([ranks])
        assert blocks
        assert all(ranks), "a rank without a batch would hang"
        expected = gradients[blocks].sum(axis=0) / tokens[blocks].sum()
        np.testing.assert_allclose(gradient_of_trainer(ranks, gradients=gradients, tokens=tokens), expected, rtol=1e-9)
        if any(len(group) < len(ranks[0]) for group in ranks):
            event("ranks with fewer batches than others")
        if any(group == [[]] for group in ranks):
            event("ranks with a dummy alone")


def test_backends_with_collectives_in_every_batch_get_equal_shares():
    for ranks in range(2, 6):
        shape = Shape(ranks=ranks, batch_size=3, update_freq=4)
        updates, _, _ = run_job(shape, num_blocks=100, equal_shares=lambda: True)
        assert all(len({len(group) for group in ranks}) == 1 for ranks in updates)


def test_validation_gives_every_rank_as_many_batches_whatever_update_freq_is():
    for ranks in (2, 3, 4, 5):
        lengths = set()
        for rank in range(ranks):
            iterator = make_iterator(rank=rank, ranks=ranks, update_freq=lambda epoch: 7)
            lengths.add(len(iterator.next_epoch_itr(shuffle=False, set_dataset_epoch=False)))
        assert len(lengths) == 1


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


def test_a_position_in_another_order_in_other_data_or_with_another_seed_is_used_with_a_warning(caplog):
    _, state = run_ranks(1, iterations=11)
    assert state[ORDER] == ORDER_VERSION and state[EPOCH][:3] == [NUM_BLOCKS, 1, []]
    make_iterator().load_state_dict(state)
    assert not caplog.messages
    make_iterator().load_state_dict({**state, ORDER: ORDER_VERSION - 1})
    assert "another order of blocks" in caplog.text
    old = {name: value for name, value in state.items() if name != EPOCH}  # of earlier versions
    caplog.clear()
    make_iterator().load_state_dict(old)
    make_iterator().load_state_dict({**state, EPOCH: state[EPOCH][:3]})  # likewise
    for changed in ([NUM_BLOCKS - 50, 1, []], [NUM_BLOCKS, 7, []], [NUM_BLOCKS, 1, [200, 3]], [NUM_BLOCKS, 1, [], 1]):
        caplog.clear()
        make_iterator().load_state_dict({**state, BLOCKS_SEEN: 0, EPOCH: changed})  # between epochs
        assert not caplog.messages
        make_iterator().load_state_dict({**state, EPOCH: changed})
        assert f"an epoch of {changed[0]} blocks with seed {changed[1]}, and this one has {NUM_BLOCKS}" in caplog.text


def test_other_blocks_of_the_same_number_are_told_by_the_fingerprint_of_their_order(caplog, monkeypatch):
    _, state = run_ranks(1, iterations=11)
    monkeypatch.setattr(BlockNumbers, "lengths_of", lambda self, addresses: LENGTHS[addresses.indices] + 1)
    make_iterator().load_state_dict(state)
    assert "or another order: the data, their weights, or options that make or order blocks" in caplog.text


class Training:
    """Ranks of a training whose batches know the number of updates, of which some change no weights."""

    def __init__(self, *, ranks, update_freq, batch_size=4, updates=0, overflows=()):
        self.updates, self.ranks, self.update_freq = updates, ranks, update_freq
        self.overflows = set(overflows)  # numbers of updates begun, from 0
        self.begun = 0

        def make_batches(epoch, first_block):
            order = KnownOrder(order_of(epoch), np.full(NUM_BLOCKS, epoch))
            return BlockBatches(order, range(first_block, NUM_BLOCKS, batch_size), NUM_BLOCKS)

        dataset = Sampled()
        self.iterators = [
            BlockEpochIterator(
                make_batches=make_batches,
                dataset=dataset,
                collate_fn=dataset.collater,
                num_shards=ranks,
                shard_id=rank,
                update_freq=lambda epoch: update_freq,
                count_updates=lambda: self.updates,
            )
            for rank in range(ranks)
        ]

    def run(self, *, state=None, most=None, epochs=1):
        """The blocks of each update, with the number that its batches have; the state at the end."""
        seen = []
        for iterator in self.iterators:
            if state is not None:
                iterator.load_state_dict(state)
        for _ in range(epochs):
            of_ranks = [iterator.next_epoch_itr() for iterator in self.iterators]
            grouped = [GroupedIterator(each, self.update_freq) for each in of_ranks]
            for parts in zip(*grouped, strict=True):
                batches = [batch for part in parts for batch in part if len(batch)]
                numbers, blocks = zip(*batches, strict=True)
                assert len({*numbers}) == 1, "the batches of an update have one number"
                seen.append((numbers[0], sorted(itertools.chain(*blocks))))
                self.updates += self.begun not in self.overflows
                self.begun += 1
                if most is not None and self.begun == most:
                    return seen, self.iterators[0].state_dict()
        return seen, self.iterators[0].state_dict()


class Sampled(BlockNumbers):
    """Its batches are the number of updates before them, and their blocks."""

    counts_updates = True

    def __getitems__(self, batch):
        return (batch.updates, batch.indices.tolist()) if len(batch) else ()


def test_each_batch_knows_after_how_many_updates_it_comes_also_when_resumed_with_other_ranks():
    whole, _ = Training(ranks=2, update_freq=3).run(epochs=2)
    assert [number for number, _ in whole] == list(range(len(whole))) and len(whole) == 18
    part, state = Training(ranks=2, update_freq=3).run(most=5)
    assert part == whole[:5]
    resumed = Training(ranks=2, update_freq=3, updates=5)
    rest, _ = resumed.run(state=state, epochs=2)
    assert rest == whole[5:]
    other = Training(ranks=1, update_freq=6, updates=5)  # the same updates
    assert [number for number, _ in other.run(state=state)[0]] == [number for number, _ in whole[5:9]]


def test_updates_whose_gradients_overflowed_count_until_the_epoch_ends_and_after_a_resume():
    overflows = {1, 3, 10}
    whole, _ = Training(ranks=1, update_freq=2, overflows=overflows).run(epochs=2)
    assert [number for number, _ in whole] == [*range(26), *range(23, 49)]
    first = Training(ranks=1, update_freq=2, overflows=overflows)
    part, state = first.run(most=5)
    assert state[BEGUN] == 2 and first.updates == 3
    resumed = Training(ranks=1, update_freq=2, updates=3, overflows={10 - 5})
    again, later = resumed.run(state=state, most=8)
    rest, _ = Training(ranks=1, update_freq=2, updates=resumed.updates).run(state=later, epochs=2)
    assert [*part, *again, *rest] == whole
    end = Training(ranks=1, update_freq=2, overflows=overflows)
    end.run(most=25)
    assert BEGUN not in end.run(most=27)[1]


def test_validations_have_no_number_of_updates():
    (iterator,) = Training(ranks=1, update_freq=1).iterators
    assert {number for number, _ in iterator.next_epoch_itr(set_dataset_epoch=False)} == {None}
