"""Blocks: every token in exactly one of them, none too long, none dropped, documents kept apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data import blocks as blocks_module
from roberta_plugin.data.blocks import EqualBlocks, make_blocks

SIZES = np.array([4, 3, 1, 9, 2, 1, 1, 25, 3, 6], dtype=np.int32)


def ranges(sizes, **options):
    """The blocks as (start, stop) pairs."""
    blocks = make_blocks(np.asarray(sizes, dtype=np.int32), **options)
    starts, lengths = blocks.bounds(np.arange(len(blocks)))
    return list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True)), blocks


def by_hand(sizes, *, block_length, break_mode):
    """The same, one item at a time: the plain reference."""
    pieces = []  # (start, stop, is separator)
    position = 0
    for size in sizes:
        size = int(size)
        is_separator = break_mode in ("complete_doc", "eos") and size == 1
        while size > block_length + (break_mode == "eos"):  # there, </s> alone is no block
            pieces.append((position, position + block_length, False))
            position, size = position + block_length, size - block_length
        pieces.append((position, position + min(size, block_length), is_separator))
        position += size
    if break_mode == "none":
        return [(start, min(start + block_length, position)) for start in range(0, position, block_length)]
    result = []
    current = None
    for start, stop, is_separator in pieces:
        if is_separator:
            result += [current] if current else []
            current = None
        elif current and break_mode != "eos" and stop - current[0] <= block_length:
            current = (current[0], stop)
        else:
            result += [current] if current else []
            current = (start, stop)
    return result + ([current] if current else [])


@pytest.mark.parametrize("break_mode", ["none", "complete", "complete_doc", "eos"])
@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60), block_length=st.integers(1, 30))
@settings(deadline=None, max_examples=60)
def test_blocks_are_those_of_the_plain_reference(break_mode, at_once, sizes, block_length):
    sizes = [*sizes, 1]  # at least one blank line
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "_ITEMS_AT_ONCE", at_once)
        found, blocks = ranges(sizes, block_length=block_length, break_mode=break_mode)
    assert found == by_hand(sizes, block_length=block_length, break_mode=break_mode)
    assert all(0 < stop - start <= block_length for start, stop in found)
    covered = sum(stop - start for start, stop in found)
    left_out = blocks.num_separators
    if break_mode == "eos":  # the </s> of a line that fills its blocks
        left_out += sum(size > block_length and (size - 1) % block_length == 0 for size in sizes)
    assert covered == sum(sizes) - left_out
    if break_mode != "none":
        assert blocks.num_split == sum(size > block_length for size in sizes)


def test_documents_are_kept_apart_and_long_lines_are_split_and_counted():
    found, blocks = ranges(SIZES, block_length=10, break_mode="complete_doc")
    assert found == [(0, 7), (8, 17), (17, 19), (21, 31), (31, 41), (41, 49), (49, 55)]
    assert (blocks.num_split, blocks.num_separators) == (1, 3)


def test_sentences_cross_documents_in_complete():
    found, blocks = ranges(SIZES, block_length=10, break_mode="complete")
    assert found == [(0, 8), (8, 17), (17, 21), (21, 31), (31, 41), (41, 49), (49, 55)]
    assert (blocks.num_split, blocks.num_separators) == (1, 0)


def test_items_of_no_tokens_do_not_stop_the_walk(monkeypatch):
    monkeypatch.setattr(blocks_module, "_ITEMS_AT_ONCE", 2)
    found, _ = ranges([3, 0, 0, 0, 0, 0, 2, 9, 0, 4], block_length=10, break_mode="complete")
    assert found == [(0, 5), (5, 14), (14, 18)]


def test_items_longer_than_uint16_are_kept_whole_in_number():
    """fairseq casts sizes to uint16, where 70,000 becomes 4,464."""
    found, blocks = ranges([70_000, 5], block_length=511, break_mode="complete")
    assert sum(stop - start for start, stop in found) == 70_005
    assert blocks.num_split == 1


def test_equal_blocks_cost_nothing_whatever_the_corpus():
    blocks = EqualBlocks(10**15 + 1, block_length=511)
    starts, lengths = blocks.bounds(np.array([0, len(blocks) - 1]))
    assert starts.tolist() == [0, (10**15 // 511) * 511]
    assert lengths.tolist() == [511, 10**15 + 1 - (10**15 // 511) * 511]


@pytest.mark.parametrize("break_mode", ["none", "complete", "eos"])
def test_no_items_make_no_blocks(break_mode):
    found, _ = ranges([], block_length=10, break_mode=break_mode)
    assert found == []


def test_complete_doc_without_blank_lines_is_refused():
    with pytest.raises(ValueError, match=r"complete_doc needs documents separated by blank lines.*--keep-empty"):
        ranges([4, 5, 6], block_length=10, break_mode="complete_doc")
