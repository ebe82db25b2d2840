import hashlib

import numpy as np
import pytest

from roberta_plugin.data import corpus_statistics
from roberta_plugin.data.corpus_statistics import (
    count_split,
    find_faults,
)
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter
from roberta_plugin.data.vocabulary import Row, Vocabulary

ITEMS = [[5, 6, 2], [2], [5, 3, 3, 7, 2], [6, 2], [2], [2], [7, 2]]  # three documents of 3, 7 and 2 tokens
VOCABULARY = Vocabulary([Row(symbol, 1) for symbol in "abcdefg"])


def write(folder, items, *, split="train"):
    VOCABULARY.save(folder / "dict.txt")
    with MmapTokensWriter(folder / split, np.uint16) as writer:
        for item in items:
            writer.write(np.array(item, dtype=np.uint16), np.array([len(item)]))
    return MmapTokens(folder / split)


@pytest.fixture(params=[2**20, 2], ids=["one window", "many windows"])
def _windows(request, monkeypatch):
    for name in ("_ITEMS_IN_WINDOW", "_TOKENS_IN_WINDOW"):
        monkeypatch.setattr(corpus_statistics, name, request.param)


@pytest.mark.usefixtures("_windows")
def test_counts(tmp_path):
    counts = count_split(write(tmp_path, ITEMS), VOCABULARY)
    assert (counts.num_items, counts.num_blank, counts.num_tokens) == (7, 3, 15)
    assert counts.num_unknown == 2
    assert counts.unknown_rate == 2 / 8
    assert counts.num_symbols_used == 5
    assert counts.num_documents == 3


def test_no_items(tmp_path):
    counts = count_split(write(tmp_path, []), VOCABULARY)
    assert (counts.num_items, counts.num_blank, counts.unknown_rate) == (0, 0, 0)
    assert counts.num_documents == 0
    assert find_faults(tmp_path, "train", VOCABULARY, None) == []


@pytest.mark.usefixtures("_windows")
@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([[5, 2], [6, 6], [7, 2]], "item 1 does not end with </s>"),
        ([[5, 2], [2], [6, 2, 7, 2]], "1 </s> inside of items"),
        ([[5, 2], [6, 200, 2]], "token id 200 in item 1"),
    ],
)
def test_faults_in_the_tokens_are_found(tmp_path, items, fault):
    write(tmp_path, items)
    faults = find_faults(tmp_path, "train", VOCABULARY, None)
    assert len(faults) == 1
    assert fault in faults[0]


@pytest.mark.usefixtures("_windows")
def test_a_size_that_reaches_behind_the_end_is_found(tmp_path):
    write(tmp_path, [[5, 2], [6, 2], [7, 2], [8, 2]])
    index = bytearray((tmp_path / "train.idx").read_bytes())
    start = len(index) - 4 * 8 - 2 * 4  # of the third of four sizes, before four positions
    index[start : start + 4] = (2**22).to_bytes(4, "little")
    (tmp_path / "train.idx").write_bytes(index)
    (fault,) = find_faults(tmp_path, "train", VOCABULARY, None)
    assert "train.idx: item 2 ends behind the end of the .bin" in fault


@pytest.mark.usefixtures("_windows")
def test_faults_in_the_offsets_are_found(tmp_path):
    write(tmp_path, [[5, 2], [6, 2], [7, 2], [8, 2]])
    assert find_faults(tmp_path, "train", VOCABULARY, None) == []
    index = bytearray((tmp_path / "train.idx").read_bytes())
    index[-16:-8] = (2).to_bytes(8, "little")  # the third of four positions
    (tmp_path / "train.idx").write_bytes(index)
    (fault,) = find_faults(tmp_path, "train", VOCABULARY, None)
    assert "item 2 does not begin where the item before it ends" in fault


def test_missing_and_cut_off_files_are_faults(tmp_path):
    write(tmp_path, ITEMS)
    content = (tmp_path / "train.bin").read_bytes()
    (tmp_path / "train.bin").write_bytes(content[:-2])
    assert "bytes" in find_faults(tmp_path, "train", VOCABULARY, None)[0]
    (tmp_path / "train.bin").unlink()
    assert "does not exist" in find_faults(tmp_path, "train", VOCABULARY, None)[0]


def test_hashes_are_compared_with_the_manifest(tmp_path):
    write(tmp_path, ITEMS)

    def record(name):
        content = (tmp_path / name).read_bytes()
        return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    manifest = {
        "dict_sha256": record("dict.txt")["sha256"],
        "splits": {"train": {"outputs": {name: record(name) for name in ("train.bin", "train.idx")}}},
    }
    assert find_faults(tmp_path, "train", VOCABULARY, manifest) == []
    write(tmp_path, [[6, *ITEMS[0][1:]], *ITEMS[1:]])
    (tmp_path / "dict.txt").write_text("a 1\n")
    faults = find_faults(tmp_path, "train", VOCABULARY, manifest)
    assert [fault.split(" ")[0].rsplit("/", 1)[1] for fault in faults] == ["train.bin", "dict.txt"]
    assert all(str(tmp_path / "manifest.json") in fault for fault in faults)
