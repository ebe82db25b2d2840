"""Files of a data-bin: .bin/.idx, manifest.json, arrays that are mapped; faulty ones are refused by name."""

import hashlib
import json
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest

from roberta_plugin.data import array_files, mmap_tokens
from roberta_plugin.data.array_files import ArrayOnDisk, take_mapped
from roberta_plugin.data.manifest import file_record, read_manifest, sha256_of_files, write_manifest
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter, SharedFiles, best_dtype, check_ids
from roberta_plugin.data.rounding import ceil_div, round_up
from roberta_plugin.json_files import sha256_of_json
from tests.refusals import refused
from tests.tiny_tokens import write_items

ITEMS = [[5, 6, 2], [2], [7, 8, 9, 10, 2], [], [4, 2]]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"])
def test_items_come_back_as_they_were_written(tmp_path, dtype):
    tokens = write_items(tmp_path / "train", ITEMS, dtype=np.dtype(dtype))
    assert tokens.dtype == np.dtype(dtype) == tokens.tokens.dtype
    assert [tokens[i].tolist() for i in range(len(tokens))] == ITEMS == [item.tolist() for item in tokens]
    assert (tokens.num_items, tokens.num_tokens) == (5, 11)
    assert tokens.sizes.tolist() == [3, 1, 5, 0, 2]
    assert tokens.starts.tolist() == [0, 3, 4, 9, 9]
    with pytest.raises(IndexError, match="has 5 items, got index 5"):
        tokens[5]


def test_one_call_for_many_items_writes_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(mmap_tokens, "_ITEMS_IN_MEMORY", 2)  # so that the index is written in several parts
    write_items(tmp_path / "one", ITEMS)
    with MmapTokensWriter(tmp_path / "all", np.uint16) as writer:
        writer.write(np.concatenate(ITEMS).astype(np.int32), np.array([len(item) for item in ITEMS]))
        assert (writer.num_items, writer.num_tokens) == (5, 11)
    for suffix in (".bin", ".idx"):
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"all{suffix}").read_bytes()


def test_no_items_at_all(tmp_path):
    tokens = write_items(tmp_path / "empty", [])
    assert len(tokens) == tokens.num_tokens == 0
    assert list(tokens) == []
    files = SharedFiles(prefix=tmp_path / "x", dtype=np.dtype(np.uint16), num_items=0, num_tokens=0)
    files.create()
    files.publish(tmp_path / "y")
    assert len(MmapTokens(tmp_path / "y")) == 0


def test_the_type_follows_the_vocabulary_as_in_fairseq_preprocess():
    assert best_dtype(65499) == np.uint16
    assert best_dtype(65500) == np.uint32
    assert best_dtype(2**32 - 1) == np.int64


def test_nothing_appears_when_writing_fails_and_earlier_files_stay(tmp_path):
    write_items(tmp_path / "train", ITEMS)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def write_and_fail():
        with MmapTokensWriter(tmp_path / "train", np.uint16) as writer:
            writer.write(np.array([9, 9, 9]), np.array([3]))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_and_fail()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    write_items(tmp_path / "train", [[1, 2]])
    assert len(MmapTokens(tmp_path / "train")) == 1
    assert len(os.listdir(tmp_path)) == 2


def test_a_kill_between_the_two_renames_cannot_pair_new_tokens_with_an_old_index(tmp_path, monkeypatch):
    write_items(tmp_path / "train", [[5, 6, 2], [2]])
    replace = os.replace

    def stop_at_the_index(source, target):
        if str(target).endswith(".idx"):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", stop_at_the_index)
    with pytest.raises(KeyboardInterrupt):
        write_items(tmp_path / "train", [[7, 2], [8, 2]])  # as many bytes as before: only the names can tell
    with pytest.raises(FileNotFoundError, match=r"train\.idx does not exist"):
        MmapTokens(tmp_path / "train")


@pytest.mark.parametrize("bad", [-1, 65536])
def test_an_id_that_the_type_cannot_hold_is_refused(tmp_path, bad):
    message = rf"Token id {bad} does not fit into the type uint16"
    refused(message, write_items, tmp_path / "train", [[5, bad, 2]])
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_a_file_that_is_cut_off_too_long_or_missing_is_named_with_a_remedy(tmp_path, suffix):
    write_items(tmp_path / "train", ITEMS)
    path = tmp_path / f"train{suffix}"
    whole = path.read_bytes()
    for content in (whole[:-1], whole + b"x"):
        path.write_bytes(content)
        message = rf"train\{suffix} has {len(content)} bytes, .* says {len(whole)}: it was cut"
        refused(message, MmapTokens, tmp_path / "train")
    path.unlink()
    message = rf"train\{suffix} does not exist.*roberta binarize"
    refused(message, MmapTokens, tmp_path / "train", error=FileNotFoundError)


def test_an_index_of_another_format_or_without_a_whole_header_is_refused(tmp_path):
    write_items(tmp_path / "train", ITEMS)
    index = (tmp_path / "train.idx").read_bytes()
    for content, message in (
        *((index[:length], r"is not a memory-mapped index of fairseq .* --dataset-impl mmap") for length in (0, 9, 25)),
        (b"TNTIDX" + index[6:], "is not a memory-mapped"),
        (index[:9] + struct.pack("<Q", 2) + index[17:], ".*version 2"),
        (index[:17] + b"\x07" + index[18:], ".*type code 7"),
    ):
        (tmp_path / "train.idx").write_bytes(content)
        refused(rf"train\.idx {message}", MmapTokens, tmp_path / "train")


def test_it_pickles_by_path(tmp_path):
    tokens = write_items(tmp_path / "train", [list(range(4, 200))] * 500)
    assert len(tokens.starts) == 500  # computed, and still not in the pickle
    pickled = pickle.dumps(tokens)
    assert len(pickled) < 500
    again = pickle.loads(pickled)
    assert np.array_equal(again.tokens, tokens.tokens)
    assert again.prefix == tokens.prefix


def test_opening_reads_a_few_pages_whatever_the_size(tmp_path):
    """A sparse .bin of 1 TiB with an index that fits: fairseq's reader, which reads all of it, would take an hour."""
    prefix = tmp_path / "huge"
    write_items(prefix, [[5, 2]])
    num_bytes = 2**40
    index = bytearray((tmp_path / "huge.idx").read_bytes())
    index[-8:] = struct.pack("<q", num_bytes - 4)
    (tmp_path / "huge.idx").write_bytes(index)
    os.truncate(tmp_path / "huge.bin", num_bytes)
    if os.stat(tmp_path / "huge.bin").st_blocks * 512 > 2**20:
        pytest.skip("the file system has no sparse files")
    tokens = MmapTokens(prefix)
    assert tokens.num_tokens == 2**39
    assert tokens.tokens[2:5].tolist() == [0, 0, 0]


def test_ids_outside_the_vocabulary_are_found_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(mmap_tokens, "_TOKENS_IN_MEMORY", 4)
    tokens = write_items(tmp_path / "train", ITEMS)
    check_ids(tokens, 11)
    refused(r"train\.bin holds the token id 10 in item 2 \(line 3 .*only 10 symbols: dict", check_ids, tokens, 10)
    signed = write_items(tmp_path / "signed", [[5, 2], [-3, 2]], dtype=np.int32)
    refused("token id -3 in item 1", check_ids, signed, 10)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_parts_written_in_any_order_make_the_files_of_the_sequential_writer(tmp_path, dtype):
    rng = np.random.default_rng(0)
    parts = []
    for num_items in (3, 0, 50, 1):
        sizes = rng.integers(1, 9, num_items).astype(np.int32)
        parts.append((rng.integers(0, 60_000, int(sizes.sum())).astype(dtype), sizes))
    with MmapTokensWriter(tmp_path / "one", dtype) as writer:
        for tokens, sizes in parts:
            writer.write(tokens, sizes)
    files = SharedFiles(
        prefix=tmp_path / "temporary",
        dtype=np.dtype(dtype),
        num_items=sum(len(sizes) for _, sizes in parts),
        num_tokens=sum(len(tokens) for tokens, _ in parts),
    )
    files.create()
    for number in (2, 0, 3, 1):
        before = parts[:number]
        files.write(
            *parts[number],
            first_item=sum(len(sizes) for _, sizes in before),
            first_token=sum(len(tokens) for tokens, _ in before),
        )
    assert sum(path.stat().st_size for path in files.paths) == files.num_bytes
    files.sync()
    files.publish(tmp_path / "many")
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"many.{suffix}").read_bytes() == (tmp_path / f"one.{suffix}").read_bytes()
    assert len(MmapTokens(tmp_path / "many")) == 54
    assert not list(tmp_path.glob("temporary*"))


TAKE = """
import sys
import numpy as np
from roberta_plugin.data import array_files
from roberta_plugin.data.array_files import take_mapped
def resident(kind):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(kind)) / 1024
values = np.asarray(np.memmap(sys.argv[1], dtype="<i4", mode="r"))
values[:: 1024].max()  # all of the file is in the page cache
import mmap
values.base._mmap.madvise(mmap.MADV_DONTNEED) if isinstance(values.base, np.memmap) else None
before = resident("RssFile")
where = np.random.default_rng(0).integers(0, len(values), 16384)
taken = take_mapped(values, where) if sys.argv[2] == "ours" else values[where]
assert (taken == 0).all()
print(resident("RssFile") - before)
"""


def test_slices_are_read_where_they_are(tmp_path):
    values = np.arange(50, dtype="<i4")
    (tmp_path / "file").write_bytes(b"head!" + values.tobytes() + b"tail")
    array = ArrayOnDisk(str(tmp_path / "file"), values.dtype, 5, 50)
    assert len(array) == 50
    for window in (slice(0, 7), slice(7, 50), slice(40, 99), slice(60, 70), slice(None)):
        assert array[window].tolist() == values[window].tolist()


def test_plain_arrays_are_taken_from_as_ever():
    assert take_mapped(np.arange(10) * 2, np.array([3, 3, 0])).tolist() == [6, 6, 0]


def test_elements_all_over_a_large_file_do_not_make_it_resident(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        file.truncate(2**28)
    grown = {}
    for way in ("ours", "numpy"):
        command = [sys.executable, "-c", TAKE, str(tmp_path / "file"), way]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        grown[way] = float(done.stdout)
    assert grown["numpy"] > 150, "numpy alone would do"
    assert grown["ours"] < 60


def test_pages_are_kept_while_a_whole_array_is_taken_from(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "_MAP_WORTH_RELEASING", 0)
    (tmp_path / "file").write_bytes(np.arange(5000).tobytes())
    values = np.asarray(np.memmap(tmp_path / "file", dtype=np.int64, mode="r"))
    released = []
    monkeypatch.setattr(array_files, "_release", released.append)
    where = np.arange(5000)[::-1]
    with array_files.keeping_pages():
        assert np.array_equal(take_mapped(values, where), where)
    assert not released
    assert np.array_equal(take_mapped(values, where), where)
    assert len(released) == 10


def test_a_manifest_comes_back_also_of_an_earlier_version_with_its_hash(tmp_path):
    assert read_manifest(tmp_path) is None
    common = {"tokenizer": {"kind": "x"}, "dict_sha256": "\u00e9"}
    written = write_manifest(tmp_path, common, {"valid": SPLIT, "train": SPLIT})
    assert read_manifest(tmp_path) == written
    assert list(written["splits"]) == ["train", "valid"]
    write_manifest(tmp_path, {**common, "num_symbols": 9, "sha256": "0"}, {})
    assert read_manifest(tmp_path)["num_symbols"] == 9


SPLIT = {"inputs": [], "outputs": {}, "rules": {}, "counts": {}}
GOOD = {"format": 2, "tokenizer": {"kind": "x"}, "dict_sha256": ""}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        json.dumps({**GOOD, "splits": 3}),
        json.dumps({**GOOD, "splits": {"train": {}}}),
        json.dumps({**GOOD, "splits": {"train": {**SPLIT, "outputs": ["train.bin"]}}}),
        json.dumps({**GOOD, "splits": {"train": {**SPLIT, "outputs": {"train.bin": {"bytes": "9"}}}}}),
        json.dumps({**GOOD, "splits": {"train": {**SPLIT, "inputs": [{"bytes": 9, "sha256": ""}]}}}),
        json.dumps({"format": 2, "splits": {}}),
        json.dumps({**GOOD, "format": 1, "splits": {}}),
        json.dumps({**GOOD, "format": 9, "splits": {}}),
    ],
)
def test_a_damaged_or_foreign_manifest_is_named(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    refused(r"manifest\.json (is damaged|has format)", read_manifest, tmp_path)


def test_hashes_are_those_of_files_in_their_order_and_of_plain_values(tmp_path):
    paths = [tmp_path / f"{number}" for number in range(9)]
    for path in paths:
        path.write_text(path.name)
    digests = [hashlib.sha256(path.name.encode()).hexdigest() for path in paths]
    assert sha256_of_files(paths, workers=3) == digests
    assert file_record(paths[3]) == {"bytes": 1, "sha256": digests[3]}
    same, other = {"b": [2], "a": 1}, {"a": 2, "b": [2]}
    assert sha256_of_json({"a": 1, "b": [2]}) == sha256_of_json(same) != sha256_of_json(other)


@pytest.mark.parametrize(("number", "quotient", "rounded"), [(0, 0, 0), (1, 1, 4), (4, 1, 4), (5, 2, 8), (9, 3, 12)])
def test_both_round_up_numbers_and_arrays(number, quotient, rounded):
    assert ceil_div(number, 4) == quotient
    assert round_up(number, 4) == rounded
    assert round_up(np.array([number], dtype=np.int32), 4).tolist() == [rounded]


def test_an_index_of_megatron_is_named(tmp_path):
    """It begins as fairseq's does, and was called cut off."""
    sizes, pointers, documents = np.array([2, 1], np.int32), np.array([0, 4], np.int64), np.array([0, 1, 2], np.int64)
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(sizes), len(documents))
    (tmp_path / "train.idx").write_bytes(head + sizes.tobytes() + pointers.tobytes() + documents.tobytes())
    (tmp_path / "train.bin").write_bytes(np.array([5, 6, 7], np.uint16).tobytes())
    refused(
        "is an index of Megatron, which begins as fairseq's and has the places of 3 documents",
        MmapTokens,
        str(tmp_path / "train"),
    )
