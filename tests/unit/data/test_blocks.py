"""Blocks and their tables: every token in exactly one block, none too long, documents kept apart; made once and kept."""

import json
import logging
import multiprocessing
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data import array_files, block_tables, blocks
from roberta_plugin.data import blocks as blocks_module
from roberta_plugin.data.block_tables import open_blocks
from roberta_plugin.data.blocks import EqualBlocks, make_blocks
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter
from tests.refusals import refused
from tests.tiny_tokens import write_items

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


@pytest.mark.parametrize(
    ("break_mode", "first", "num_separators"),
    [("complete_doc", [(0, 7), (8, 17), (17, 19)], 3), ("complete", [(0, 8), (8, 17), (17, 21)], 0)],
)
def test_documents_are_kept_apart_or_crossed_and_long_lines_are_split_and_counted(break_mode, first, num_separators):
    found, blocks = ranges(SIZES, block_length=10, break_mode=break_mode)
    assert found == [*first, (21, 31), (31, 41), (41, 49), (49, 55)]
    assert (blocks.num_split, blocks.num_separators) == (1, num_separators)


def test_items_of_no_tokens_do_not_stop_the_walk_and_no_items_make_no_blocks(monkeypatch):
    monkeypatch.setattr(blocks_module, "_ITEMS_AT_ONCE", 2)
    found, _ = ranges([3, 0, 0, 0, 0, 0, 2, 9, 0, 4], block_length=10, break_mode="complete")
    assert found == [(0, 5), (5, 14), (14, 18)]
    for break_mode in ("none", "complete", "eos"):
        assert ranges([], block_length=10, break_mode=break_mode)[0] == []


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


TABLE = "blocks-train-complete-20.table"


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    """Tables for small data too, written in many windows."""
    monkeypatch.setattr(block_tables, "_ITEMS_WITHOUT_TABLE", 0)
    monkeypatch.setattr(blocks, "_ITEMS_AT_ONCE", 7)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder, *, seed=0, num_items=200, longest=60, name="train"):
    folder.mkdir(exist_ok=True)
    sizes = np.random.default_rng(seed).integers(1, longest + 1, num_items)
    sizes[3::17] = 1  # blank lines
    with MmapTokensWriter(folder / name, np.uint16) as writer:
        writer.write(np.arange(sizes.sum()) % 1000, sizes)
    return MmapTokens(folder / name)


def content(blocks_):
    everything = np.arange(len(blocks_))
    starts, lengths = blocks_.bounds(everything)
    assert np.array_equal(lengths, blocks_.lengths(everything))
    assert blocks_.longest == lengths.max(initial=0)
    return list(zip(starts.tolist(), lengths.tolist(), strict=True)), blocks_.num_split, blocks_.num_separators


@pytest.mark.parametrize("break_mode", ["none", "complete", "complete_doc", "eos"])
@pytest.mark.parametrize("longest", [3, 20, 60, 400])
@pytest.mark.parametrize("block_length", [1, 20, 70_000])
def test_a_table_has_the_blocks_that_are_cut_in_memory(tmp_path, monkeypatch, break_mode, longest, block_length):
    monkeypatch.setattr(array_files, "_TAKEN_AT_ONCE", 9)
    monkeypatch.setattr(array_files, "_MAP_WORTH_RELEASING", 0)
    tokens = write(tmp_path / "data", longest=longest)
    expected = make_blocks(tokens.sizes, block_length=block_length, break_mode=break_mode)
    for _ in range(2):  # made, then opened
        found = open_blocks(tokens, block_length=block_length, break_mode=break_mode)
        assert content(found) == content(expected)
    shuffled = np.random.default_rng(1).permutation(len(expected))
    for mine, theirs in zip(found.bounds(shuffled), expected.bounds(shuffled), strict=True):
        assert np.array_equal(mine, theirs)


def test_a_table_is_made_once_and_opened_from_then_on(tmp_path, monkeypatch):
    tokens = write(tmp_path / "data")
    expected = content(open_blocks(tokens, block_length=20, break_mode="complete"))
    assert sorted(os.listdir(tmp_path / "data")) == [f".{TABLE}.lock", TABLE, "train.bin", "train.idx"]
    monkeypatch.setattr(block_tables, "cut_items", None)
    monkeypatch.setattr(block_tables, "count_items", None)
    assert content(open_blocks(tokens, block_length=20, break_mode="complete")) == expected
    with pytest.raises(TypeError):
        open_blocks(tokens, block_length=21, break_mode="complete")


def test_small_data_leave_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(block_tables, "_ITEMS_WITHOUT_TABLE", 200)
    tokens = write(tmp_path / "data")
    for break_mode in ("none", "complete", "complete_doc", "eos"):
        open_blocks(tokens, block_length=20, break_mode=break_mode)
    assert sorted(os.listdir(tmp_path / "data")) == ["train.bin", "train.idx"]


def test_a_table_of_other_data_is_made_anew(tmp_path):
    open_blocks(write(tmp_path / "data", seed=1), block_length=20, break_mode="complete")
    other = write(tmp_path / "data", seed=2)
    found = open_blocks(other, block_length=20, break_mode="complete")
    assert content(found) == content(make_blocks(other.sizes, block_length=20, break_mode="complete"))


@pytest.mark.parametrize("damage", ["cut", "emptied", "garbled head", "of another version", "longer", "zeros"])
def test_a_damaged_table_is_made_anew(tmp_path, damage):
    tokens = write(tmp_path / "data")
    expected = content(open_blocks(tokens, block_length=20, break_mode="complete"))
    path = tmp_path / "data" / TABLE
    good = path.read_bytes()
    bad = {
        "cut": good[:-8],
        "emptied": b"",
        "garbled head": b"x" * 100 + good[100:],
        "of another version": good.replace(b'"format": 4', b'"format": 3'),
        "longer": good + bytes(8),
        "zeros": good[:4096] + bytes(len(good) - 4096),
    }[damage]
    path.write_bytes(bad)
    assert content(open_blocks(tokens, block_length=20, break_mode="complete")) == expected
    assert path.read_bytes() == good != bad


def cannot_write_to(monkeypatch, *folders):
    """As root, permissions do not stop anyone."""
    plain = block_tables.one_writer

    def locked(path):
        if path.parent in folders:
            raise PermissionError(13, "Permission denied")
        return plain(path)

    monkeypatch.setattr(block_tables, "one_writer", locked)


def test_the_users_cache_has_the_tables_of_a_folder_that_is_read_only(tmp_path, monkeypatch):
    cannot_write_to(monkeypatch, tmp_path / "a", tmp_path / "b")
    for name in ("a", "b"):
        tokens = write(tmp_path / name, seed=ord(name))
        for _ in range(2):
            found = open_blocks(tokens, block_length=20, break_mode="complete")
            assert content(found) == content(make_blocks(tokens.sizes, block_length=20, break_mode="complete"))
        assert sorted(os.listdir(tmp_path / name)) == ["train.bin", "train.idx"]
    assert len(list((tmp_path / "cache" / "roberta_plugin").glob(f"*-{TABLE}"))) == 2


@pytest.mark.parametrize("break_mode", ["complete", "eos"])
def test_where_nothing_can_be_kept_blocks_are_there_all_the_same(tmp_path, monkeypatch, caplog, break_mode):
    cannot_write_to(monkeypatch, tmp_path / "data", tmp_path / "cache" / "roberta_plugin")
    tokens = write(tmp_path / "data")
    found = open_blocks(tokens, block_length=20, break_mode=break_mode)
    assert content(found) == content(make_blocks(tokens.sizes, block_length=20, break_mode=break_mode))
    assert sorted(os.listdir(tmp_path / "data")) == ["train.bin", "train.idx"]
    assert f"make {tmp_path / 'data'} or" in caplog.text


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    tokens = write(tmp_path / "data")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(block_tables.shutil, "copyfileobj", full)  # as a write would fail
        with pytest.raises(OSError, match="No space left"):
            open_blocks(tokens, block_length=20, break_mode="complete")
    assert sorted(os.listdir(tmp_path / "data")) == [f".{TABLE}.lock", "train.bin", "train.idx"]
    open_blocks(tokens, block_length=20, break_mode="complete")
    assert TABLE in os.listdir(tmp_path / "data")


def _open_and_log(prefix, cache, log):
    """In a process of its own: what it said about making a table goes to a file."""
    os.environ["XDG_CACHE_HOME"] = cache
    block_tables._ITEMS_WITHOUT_TABLE = 0
    logging.basicConfig(filename=log, level=logging.INFO, format="%(message)s", force=True)
    found = open_blocks(MmapTokens(prefix), block_length=20, break_mode="complete")
    Path(f"{log}.content").write_bytes(pickle.dumps(content(found)))


def test_processes_that_start_together_make_one_table(tmp_path):
    tokens = write(tmp_path / "data", num_items=20_000)
    context = multiprocessing.get_context("fork")
    logs = [tmp_path / f"{number}.log" for number in range(4)]
    processes = [
        context.Process(target=_open_and_log, args=(tokens.prefix, str(tmp_path / "cache"), log)) for log in logs
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sum(log.read_text().count("making the table") for log in logs) == 1
    expected = content(make_blocks(tokens.sizes, block_length=20, break_mode="complete"))
    assert all(pickle.loads(Path(f"{log}.content").read_bytes()) == expected for log in logs)


def test_documents_without_blank_lines_are_refused_and_no_table_is_left(tmp_path):
    tokens = write_items(tmp_path / "train", [[0, 1, 2], [3, 4, 5]])
    message = r"complete_doc needs documents separated by blank lines.*--keep-empty.*full-sent"
    refused(message, make_blocks, tokens.sizes, block_length=10, break_mode="complete_doc")
    refused(message, open_blocks, tokens, block_length=20, break_mode="complete_doc")
    assert not list(tmp_path.glob("*.table")) and not list(tmp_path.glob("*.tmp"))


def test_fairseq_takes_the_table_of_a_second_validation_set_for_no_split(tmp_path):
    data_utils = pytest.importorskip("fairseq.data.data_utils")
    open_blocks(write(tmp_path / "data", name="valid1"), block_length=20, break_mode="complete")
    assert (tmp_path / "data" / "blocks-valid1-complete-20.table").exists()
    assert data_utils._find_extra_valid_paths(str(tmp_path / "data")) == {"valid1"}


def test_the_head_of_a_table_can_be_read_by_people(tmp_path):
    tokens = write(tmp_path / "data")
    open_blocks(tokens, block_length=20, break_mode="complete")
    head = json.loads((tmp_path / "data" / TABLE).read_bytes()[:4096])
    assert head["made_of"]["break_mode"] == "complete"
    assert head["numbers"]["num_split"] == (tokens.sizes > 20).sum() > 0
    assert [name for name, *_ in head["arrays"]] == ["lengths", "starts"]
