"""Chunks of sentences: BERT's rule, every sentence once, tables equal to arrays in memory, refusals."""

import numpy as np
import pytest

from roberta_plugin.data import blocks, pair_chunks
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter
from roberta_plugin.data.pair_chunks import Chunks, Targets, make_chunks, open_chunks

FORMATS = ("segment-pair", "sentence-pair")


def random_sizes(seed, num_items=400):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 30, num_items)
    sizes[rng.random(num_items) < 0.15] = 1  # some blank lines follow each other
    return sizes.astype(np.int32)


DEFAULT = Targets(40, 0.0)


def chunks_of(sizes, pair_format, targets=DEFAULT):
    arrays, counts = make_chunks(sizes, pair_format=pair_format, targets=targets)
    return Chunks(arrays, counts, pair_format=pair_format, targets=targets)


def all_chunks(chunks):
    first, size, document = chunks.joint(np.arange(chunks.num_joint))
    alone, of = chunks.single(np.arange(chunks.num_single))
    joint = [tuple(map(int, row)) for row in zip(first, size, document, strict=True)]
    return joint, [(int(item), 1, int(number)) for item, number in zip(alone, of, strict=True)]


def documents_of(sizes):
    documents, begun = [], False
    for item, size in enumerate(sizes.tolist()):
        if size == 1:
            begun = False
        elif begun:
            documents[-1].append(item)
        else:
            documents.append([item])
            begun = True
    return documents


def bert_chunks(sizes, targets):
    """The loop of create_instances_from_document, without what the draws of a pair change."""
    joint, single = [], []
    for number, document in enumerate(documents_of(sizes)):
        chunk, length = [], 0
        for position, item in enumerate(document):
            chunk.append(item)
            length += int(sizes[item]) - 1
            target = int(targets.of(np.array([chunk[0]]))[0])
            if position == len(document) - 1 or length >= target:
                (joint if len(chunk) > 1 else single).append((chunk[0], len(chunk), number))
                chunk, length = [], 0
    return joint, single


@pytest.mark.parametrize("short_prob", [0.0, 0.3])
@pytest.mark.parametrize("window", [7, 2**19])
def test_segments_are_cut_as_bert_cuts_them(short_prob, window, monkeypatch):
    monkeypatch.setattr(blocks, "_ITEMS_AT_ONCE", window)
    targets = Targets(40, short_prob)
    for seed in range(8):
        sizes = random_sizes(seed)
        assert all_chunks(chunks_of(sizes, "segment-pair", targets)) == bert_chunks(sizes, targets)


@pytest.mark.parametrize("pair_format", FORMATS)
def test_every_sentence_is_in_one_chunk(pair_format):
    for seed in range(5):
        sizes = random_sizes(seed)
        joint, single = all_chunks(chunks_of(sizes, pair_format))
        items = [item for first, size, _ in joint + single for item in range(first, first + size)]
        assert sorted(items) == np.flatnonzero(sizes != 1).tolist()
        assert len(joint) > 10 and len(single) > 5
        documents = documents_of(sizes)
        assert all(
            first in documents[number] and first + size - 1 in documents[number] for first, size, number in joint
        )


def test_counts_say_what_the_lines_are():
    sizes = np.array([1, 5, 1, 1, 4, 60, 1, 3, 1, 1, 1], dtype=np.int32)
    counts = chunks_of(sizes, "segment-pair").counts
    assert counts == (4, 68, 4, 2, 1)  # blank lines at the start, in the middle, and two at the end


def test_short_targets_have_bert_s_lengths():
    targets = Targets(508, 0.1).of(np.arange(200_000))
    short = targets[targets < 508]
    assert len(short) / len(targets) == pytest.approx(0.1, abs=0.005)
    assert short.min() == 2 and short.mean() == pytest.approx(254, abs=6)
    assert (Targets(508, 0.0).of(np.arange(9)) == 508).all()


def write(prefix, sizes):
    with MmapTokensWriter(prefix, np.uint16) as writer:
        tokens = np.full(int(sizes.sum()), 5, dtype=np.uint16)
        tokens[np.cumsum(sizes) - 1] = 2
        writer.write(tokens, sizes)
    return MmapTokens(prefix)


@pytest.mark.parametrize("pair_format", FORMATS)
def test_a_table_holds_the_same_chunks_and_is_made_once(pair_format, tmp_path, monkeypatch):
    tokens = write(tmp_path / "train", random_sizes(3))
    targets = Targets(40, 0.2)
    expected = open_chunks(tokens, pair_format=pair_format, targets=targets)
    assert not list(tmp_path.glob("*.table"))
    monkeypatch.setattr(pair_chunks, "_ITEMS_WITHOUT_TABLE", 0)
    monkeypatch.setattr(blocks, "_ITEMS_AT_ONCE", 16)
    made = open_chunks(tokens, pair_format=pair_format, targets=targets)
    monkeypatch.setattr(pair_chunks, "_parts", None)  # a second table cannot be made
    for chunks in (made, open_chunks(tokens, pair_format=pair_format, targets=targets)):
        assert all_chunks(chunks) == all_chunks(expected) and chunks.counts == expected.counts
    assert len(list(tmp_path.glob("*.table"))) == 1


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [([5, 6, 7, 8], "has only 1: binarize text with a blank line"), ([5, 1, 6, 1, 7], "--split-sentences")],
)
def test_data_without_documents_or_without_sentences_are_refused(sizes, sentence, tmp_path):
    tokens = write(tmp_path / "train", np.array(sizes, dtype=np.int32))
    for pair_format in FORMATS:
        with pytest.raises(ValueError, match=sentence):
            open_chunks(tokens, pair_format=pair_format, targets=Targets(40, 0.0))
