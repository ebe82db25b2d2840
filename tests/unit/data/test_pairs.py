"""Pairs: half follow on, the others come from another document, every sentence once, and BERT's truncation."""

import random
from collections import Counter

import numpy as np
import pytest

from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter
from roberta_plugin.data.pair_chunks import Targets, open_chunks
from roberta_plugin.data.pairs import Pairs, PairSource, count_heads, empty_batch, fill_pairs, shorten

FORMATS = ("segment-pair", "sentence-pair")


def write_sentences(prefix, *, num_documents=120, longest=40, seed=0, max_sentences=20):
    """Each token is the number of its sentence, so that a text tells where it comes from; returns documents (I,)."""
    rng = np.random.default_rng(seed)
    document_of = []
    with MmapTokensWriter(prefix, np.int32) as writer:
        for document in range(num_documents):
            for _ in range(rng.integers(1, max_sentences)):
                size = int(rng.integers(2, longest))
                writer.write(np.array([10 + len(document_of)] * (size - 1) + [2]), np.array([size]))
                document_of.append(document)
            for _ in range(rng.integers(1, 3)):
                writer.write(np.array([2]), np.array([1]))
                document_of.append(-1)
    return MmapTokens(prefix), np.array(document_of)


def texts(source, pairs):
    """The ids of A and of B of each pair, as they stand in the pair."""
    found = []
    for pair in range(len(pairs.follows)):
        both = []
        for text in (0, 1):
            start, span = pairs.starts[text, pair], pairs.spans[text, pair]
            ids = source.tokens.tokens[start : start + span]
            ids = ids[ids != 2]
            assert len(ids) == pairs.contents[text, pair]
            both.append(ids[pairs.fronts[text, pair] :][: pairs.lengths[text, pair]])
        found.append(both)
    return found


def make(tmp_path, pair_format, *, longest=60, short_prob=0.0, **options):
    tokens, document_of = write_sentences(tmp_path / "train", **options)
    source = PairSource(tokens, open_chunks(tokens, pair_format=pair_format, targets=Targets(longest, short_prob)))
    return source, document_of


def all_pairs(source, number=1, seed=(3,)):
    indices = np.arange(len(source))
    return source.pairs(indices, passes=np.full_like(indices, number), seed=seed)


@pytest.mark.parametrize("pair_format", FORMATS)
def test_half_of_the_pairs_follow_on_and_no_other_is_of_one_document(pair_format, tmp_path):
    source, document_of = make(tmp_path, pair_format)
    for number in (1, 2):
        pairs = all_pairs(source, number)
        assert len(pairs.follows) > 200 and abs(2 * int(pairs.follows.sum()) - len(pairs.follows)) <= 2
        assert pairs.follows.sum() == source.num_following
        for (a, b), follows in zip(texts(source, pairs), pairs.follows, strict=True):
            assert len(a) and len(b)
            one, other = ({int(document_of[sentence - 10]) for sentence in text} for text in (a, b))
            assert len(one) == len(other) == 1 and -1 not in one | other
            assert (one == other) == follows
            if follows:
                assert b[0] - a[-1] in (0, 1) or len(a) + len(b) == 60  # the next sentence, unless it was cut


@pytest.mark.parametrize("pair_format", FORMATS)
def test_every_sentence_is_once_in_a_text_of_its_own(pair_format, tmp_path):
    """First texts, and second ones that follow: what BERT puts back is used, and nothing twice."""
    source, document_of = make(tmp_path, pair_format, longest=2000, max_sentences=8)
    for number in (1, 5):
        pairs = all_pairs(source, number)
        seen = Counter()
        for (a, b), follows in zip(texts(source, pairs), pairs.follows, strict=True):
            seen.update({*a.tolist(), *(b.tolist() if follows else [])})
        assert set(seen) == set((np.flatnonzero(document_of >= 0) + 10).tolist())
        assert set(seen.values()) == {1}


@pytest.mark.parametrize("pair_format", FORMATS)
def test_pairs_are_a_function_of_seed_pass_and_index(pair_format, tmp_path):
    source, _ = make(tmp_path, pair_format, short_prob=0.1 if pair_format == "segment-pair" else 0.0)
    every = all_pairs(source, 2)
    some = np.random.default_rng(1).permutation(len(source))[:50]
    again = PairSource(source.tokens, source.chunks).pairs(some, passes=np.full(50, 2), seed=(3,))
    for whole, part in zip(every, again, strict=True):
        assert np.array_equal(whole[..., some], part)
    for other in (all_pairs(source, 3), all_pairs(source, 2, seed=(4,))):
        assert (other.starts != every.starts).mean() > 0.2
    mixed = source.pairs(np.array([7, 7]), passes=np.array([1, 2]), seed=(3,))
    assert mixed.starts[1, 0] == all_pairs(source, 1).starts[1, 7] and mixed.starts[1, 1] == every.starts[1, 7]


def test_random_texts_come_from_every_other_document_equally_often(tmp_path):
    source, document_of = make(tmp_path, "segment-pair", num_documents=9)
    seen = Counter()
    for number in range(1, 150):
        pairs = all_pairs(source, number)
        items = np.searchsorted(source.tokens.starts, pairs.starts, side="right") - 1
        random_ones = ~pairs.follows
        seen.update(zip(*(document_of[items[text, random_ones]].tolist() for text in (0, 1)), strict=True))
    for first in range(9):
        counts = np.array([seen[first, second] for second in range(9) if second != first])
        assert seen[first, first] == 0 and counts.sum() > 100
        assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 30  # chi-square of 7 degrees: 1 in 10,000


def test_a_random_text_is_as_long_as_bert_makes_it(tmp_path):
    """Whole sentences until the chunk's target is reached, or to the end of the document; then the pair is cut."""
    source, document_of = make(tmp_path, "segment-pair", longest=60, max_sentences=60)
    pairs = all_pairs(source)
    sizes, starts = source.tokens.sizes, source.tokens.starts
    checked = 0
    for pair in np.flatnonzero(~pairs.follows):
        item = int(np.searchsorted(starts, pairs.starts[1, pair]))
        length, end = 0, item
        while end == item or (length < 60 - pairs.contents[0, pair] and document_of[end] == document_of[item]):
            length += int(sizes[end]) - 1
            end += 1
        assert length == pairs.contents[1, pair]
        checked += end - item > 1
    assert checked > 50


def test_pairs_fill_their_length_and_short_ones_do_not(tmp_path):
    source, _ = make(tmp_path, "segment-pair", max_sentences=200, num_documents=40)
    full = all_pairs(source).lengths.sum(axis=0)
    assert full.max() == 60 and (full == 60).mean() > 0.85
    short, _ = make(tmp_path, "segment-pair", max_sentences=200, num_documents=40, short_prob=0.5)
    assert (all_pairs(short).lengths.sum(axis=0) < 60).mean() > 0.3
    sentences, _ = make(tmp_path, "sentence-pair", longest=500)
    pairs = all_pairs(sentences)
    assert all(len(set(text.tolist())) == 1 for both in texts(sentences, pairs) for text in both)
    assert pairs.lengths.mean() == pytest.approx(20, abs=2)  # sentences have 1 to 38 tokens


def test_sentences_longer_than_a_pair_are_cut_and_every_part_is_seen(tmp_path):
    with MmapTokensWriter(tmp_path / "train", np.int32) as writer:
        for start in (10, 5000):
            for first, size in ((start, 2001), (start + 2000, 6), (start + 2005, 6)):
                writer.write(np.append(np.arange(first, first + size - 1), 2), np.array([size]))
            writer.write(np.array([2]), np.array([1]))
    tokens = MmapTokens(tmp_path / "train")
    source = PairSource(tokens, open_chunks(tokens, pair_format="sentence-pair", targets=Targets(60, 0.0)))
    assert source.chunks.counts.num_long_sentences == 2
    starts = []
    for number in range(1, 60):
        pairs = all_pairs(source, number)
        assert (pairs.lengths.sum(axis=0) <= 60).all() and (pairs.lengths > 0).all()
        starts += pairs.fronts[pairs.contents > 1000].tolist()
    assert min(starts) < 300 and max(starts) > 1700


def truncate_seq_pair(a, b, longest, rng):
    """BERT's function of that name; returns how many tokens of the front and in all each text loses."""
    lengths, fronts = [a, b], [0, 0]
    while sum(lengths) > longest:
        text = 0 if lengths[0] > lengths[1] else 1
        fronts[text] += rng.random() < 0.5
        lengths[text] -= 1
    return lengths, fronts


def test_a_pair_is_shortened_as_bert_shortens_it():
    rng = random.Random(0)
    for longest in (7, 8, 30):
        contents = np.array([(a, b) for a in range(1, 40) for b in range(1, 40)]).T
        expected = np.array([truncate_seq_pair(a, b, longest, rng)[0] for a, b in contents.T]).T
        assert np.array_equal(shorten(contents, longest=longest), expected)
        assert (expected < contents).any() and (expected == contents).any()


def test_each_token_is_cut_off_the_front_with_probability_one_half():
    keys = np.random.default_rng(0).integers(0, 2**64, 40_000, dtype=np.uint64)
    for tosses in (1, 5, 64, 200):
        heads = count_heads(np.full(len(keys), tosses), keys)
        assert heads.min() >= 0 and heads.max() <= tosses
        assert heads.mean() == pytest.approx(tosses / 2, abs=4 * (tosses / 4 / len(keys)) ** 0.5)
        assert heads.var() == pytest.approx(tosses / 4, rel=0.05)


def write(prefix, *lines):
    with MmapTokensWriter(prefix, np.uint16) as writer:
        for line in lines:
            writer.write(np.array(line), np.array([len(line)]))
    return MmapTokens(prefix)


def pair(*, starts, spans, contents, fronts=(0, 0), lengths=None, follows=True):
    columns = [np.array(value)[:, None] for value in (starts, spans, contents, fronts, lengths or contents)]
    return Pairs(*columns, np.array([follows]))


def fill(tokens, pairs, *, rows=(0,), num_pairs=1, width=9):
    batch = empty_batch(num_pairs, width=width, bos_id=0, pad_id=1)
    fill_pairs(batch, tokens, pairs, rows=np.array(rows), eos_id=2, vocab_size=30)
    return batch


def test_a_pair_has_its_separators_and_segments(tmp_path):
    tokens = write(tmp_path / "train", [11, 12, 2], [13, 2], [2], [14, 2])
    batch = fill(tokens, pair(starts=(0, 6), spans=(5, 2), contents=(3, 1), fronts=(0, 0), lengths=(2, 1)))
    assert batch.tokens.tolist() == [[0, 11, 12, 2, 2, 14, 2, 1, 1]]
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1, 0, 0]]
    assert batch.lengths.tolist() == [7] and batch.follows.tolist() == [True]
    batch = fill(
        tokens,
        pair(starts=(0, 6), spans=(5, 2), contents=(3, 1), fronts=(1, 0), lengths=(2, 1)),
        rows=(1,),
        num_pairs=2,
    )
    assert batch.tokens[1].tolist() == [0, 12, 13, 2, 2, 14, 2, 1, 1]
    assert batch.tokens[0].tolist() == [0] + [1] * 8


def test_an_id_outside_the_vocabulary_is_refused_with_its_line(tmp_path):
    tokens = write(tmp_path / "train", [11, 12, 2], [13, 31, 2])
    with pytest.raises(ValueError, match=r"token id 31 in item 1 \(line 2"):
        fill(tokens, pair(starts=(0, 3), spans=(3, 3), contents=(2, 2)))


def test_a_line_with_another_end_of_sentence_is_refused(tmp_path):
    tokens = write(tmp_path / "train", [11, 12, 2], [13, 2, 14, 2])
    with pytest.raises(ValueError, match=r"item 1 \(line 2 of the text\).*holds 2 of them"):
        fill(tokens, pair(starts=(0, 3), spans=(3, 4), contents=(2, 3)))


def test_whole_words_end_with_their_sentence(tmp_path):
    """The first word of a line has no space before it, so its token alone does not say that a word begins."""
    tokens = write(tmp_path / "train", [11, 12, 13, 2], [14, 15, 2], [16, 2])
    batch = empty_batch(1, width=11, bos_id=0, pad_id=1)._replace(begins=np.zeros((1, 11), dtype=np.bool_))
    pairs = pair(starts=(0, 7), spans=(7, 2), contents=(5, 1), fronts=(1, 0), lengths=(4, 1))
    fill_pairs(batch, tokens, pairs, rows=np.array([0]), eos_id=2, vocab_size=30)
    assert batch.tokens.tolist() == [[0, 12, 13, 14, 15, 2, 2, 16, 2, 1, 1]]
    assert batch.begins[0].nonzero()[0].tolist() == [3, 7]

    special, starts = np.isin(np.arange(30), [0, 1, 2, 29]), np.isin(np.arange(30), [15])  # 15 has a space before it
    masker = Masker(
        MaskingRecipe(mask_prob=0.5, whole_words=True),
        mask_id=29,
        pad_id=1,
        never_masked=special,
        never_drawn=special,
        word_starts=starts,
    )
    words = ({1, 2}, {3}, {4}, {7})
    seen = set()
    for number in range(200):
        chosen = masker.mask(
            batch.tokens, seed=1, passes=np.array([number]), indices=np.array([0]), begins=batch.begins
        ).targets[0]
        found = set((chosen != 1).nonzero()[0].tolist())
        assert all(word <= found or not word & found for word in words)
        seen.add(tuple(word <= found for word in words))
    assert {(True, False, True, False), (False, True, False, True), (True, True, False, False)} <= seen
