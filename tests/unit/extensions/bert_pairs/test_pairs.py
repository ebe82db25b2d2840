"""Pairs of sentences and of chunks: half follow on, every sentence once, BERT's truncation, batches."""

import random
from collections import Counter

import numpy as np
import pytest
import torch

from roberta_plugin.data import blocks
from roberta_plugin.extensions.bert_pairs import pair_chunks
from roberta_plugin.extensions.bert_pairs.pair_chunks import Chunks, Targets, make_chunks, open_chunks
from roberta_plugin.extensions.bert_pairs.pair_dataset import PairDataset
from roberta_plugin.extensions.bert_pairs.pairs import Pairs, PairSource, count_heads, empty_batch, fill_pairs, shorten
from roberta_plugin.models.encoder import segments_of_pairs
from tests.refusals import refused
from tests.tiny_pairs import pair_dataset, pair_model, some_addresses
from tests.tiny_tokens import PAD, masker_of, original, write_items

FORMATS = ("segment-pair", "sentence-pair")


def write_sentences(prefix, *, num_documents=120, longest=40, seed=0, max_sentences=20):
    """Each token is the number of its sentence, so that a text tells where it comes from; returns documents (I,)."""
    rng = np.random.default_rng(seed)
    items, document_of = [], []
    for document in range(num_documents):
        for _ in range(rng.integers(1, max_sentences)):
            items.append([10 + len(document_of)] * (int(rng.integers(2, longest)) - 1) + [2])
            document_of.append(document)
        for _ in range(rng.integers(1, 3)):
            items.append([2])
            document_of.append(-1)
    return write_items(prefix, items, np.int32), np.array(document_of)


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
    items = []
    for start in (10, 5000):
        items += [[*range(start, start + 2000), 2], [*range(start + 2000, start + 2005), 2]]
        items += [[*range(start + 2005, start + 2010), 2], [2]]
    tokens = write_items(tmp_path / "train", items, np.int32)
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


def pair(*, starts, spans, contents, fronts=(0, 0), lengths=None, follows=True):
    columns = [np.array(value)[:, None] for value in (starts, spans, contents, fronts, lengths or contents)]
    return Pairs(*columns, np.array([follows]))


def fill(tokens, pairs, *, rows=(0,), num_pairs=1, width=9):
    batch = empty_batch(num_pairs, width=width, bos_id=0, pad_id=1)
    fill_pairs(batch, tokens, pairs, rows=np.array(rows), eos_id=2, vocab_size=30)
    return batch


def test_a_pair_has_its_separators_and_segments(tmp_path):
    tokens = write_items(tmp_path / "train", [[11, 12, 2], [13, 2], [2], [14, 2]])
    batch = fill(tokens, pair(starts=(0, 6), spans=(5, 2), contents=(3, 1), lengths=(2, 1)))
    assert batch.tokens.tolist() == [[0, 11, 12, 2, 2, 14, 2, 1, 1]]
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1, 0, 0]]
    assert batch.lengths.tolist() == [7] and batch.follows.tolist() == [True]
    second = pair(starts=(0, 6), spans=(5, 2), contents=(3, 1), fronts=(1, 0), lengths=(2, 1))
    batch = fill(tokens, second, rows=(1,), num_pairs=2)
    assert batch.tokens[1].tolist() == [0, 12, 13, 2, 2, 14, 2, 1, 1]
    assert batch.tokens[0].tolist() == [0] + [1] * 8


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ([13, 31, 2], r"token id 31 in item 1 \(line 2"),
        ([13, 2, 14, 2], r"item 1 \(line 2 of the text\).*this line has 2"),
    ],
)
def test_an_unknown_id_and_another_end_of_sentence_are_refused_with_their_line(tmp_path, second, message):
    tokens = write_items(tmp_path / "train", [[11, 12, 2], second])
    spans = (3, len(second))
    refused(message, fill, tokens, pair(starts=(0, 3), spans=spans, contents=(2, len(second) - 1)))


def test_whole_words_end_with_their_sentence(tmp_path):
    """The first word of a line has no space before it, so its token alone does not say that a word begins."""
    tokens = write_items(tmp_path / "train", [[11, 12, 13, 2], [14, 15, 2], [16, 2]])
    batch = empty_batch(1, width=11, bos_id=0, pad_id=1)._replace(begins=np.zeros((1, 11), dtype=np.bool_))
    pairs = pair(starts=(0, 7), spans=(7, 2), contents=(5, 1), fronts=(1, 0), lengths=(4, 1))
    fill_pairs(batch, tokens, pairs, rows=np.array([0]), eos_id=2, vocab_size=30)
    assert batch.tokens.tolist() == [[0, 12, 13, 14, 15, 2, 2, 16, 2, 1, 1]]
    assert batch.begins[0].nonzero()[0].tolist() == [3, 7]

    starts = np.isin(np.arange(30), [15])  # 15 has a space before it
    masker = masker_of(30, word_starts=starts, mask_prob=0.5, whole_words=True)
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
            target = int(targets.draw(np.array([chunk[0]]))[0])
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
    targets = Targets(508, 0.1).draw(np.arange(200_000))
    short = targets[targets < 508]
    assert len(short) / len(targets) == pytest.approx(0.1, abs=0.005)
    assert short.min() == 2 and short.mean() == pytest.approx(254, abs=6)
    assert (Targets(508, 0.0).draw(np.arange(9)) == 508).all()


def write_sizes(prefix, sizes):
    return write_items(prefix, [[5] * (size - 1) + [2] for size in sizes])


@pytest.mark.parametrize("pair_format", FORMATS)
def test_a_table_holds_the_same_chunks_and_is_made_once(pair_format, tmp_path, monkeypatch):
    tokens = write_sizes(tmp_path / "train", random_sizes(3))
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
    tokens = write_sizes(tmp_path / "train", np.array(sizes, dtype=np.int32))
    for pair_format in FORMATS:
        refused(sentence, open_chunks, tokens, pair_format=pair_format, targets=Targets(40, 0.0))


V = 5000


@pytest.fixture(scope="module", params=["segment-pair", "sentence-pair"])
def sources(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    found = []
    for seed in (0, 1):
        tokens, _ = write_sentences(folder / f"train{seed}", num_documents=40, seed=seed)
        found.append(PairSource(tokens, open_chunks(tokens, pair_format=request.param, targets=Targets(60, 0.0))))
    return found


def make_dataset(sources, *, num_static_masks=0, **options):
    masker = masker_of(V, num_static_masks=num_static_masks)
    settings = {"with_segments": True, "with_next_sentence": True, "max_length": 64, **options}
    return PairDataset(sources, masker, eos_id=2, bos_id=0, pad_id=PAD, vocab_size=V, seed=7, **settings)


def test_a_batch_holds_its_pairs(sources):
    dataset = make_dataset(sources)
    seen, following = set(), 0
    for addresses in dataset.batches(1, max_sentences=8):
        batch = dataset.__getitems__(addresses)
        tokens, segments = original(batch), batch["net_input"]["segments"]
        lengths = batch["net_input"]["src_lengths"]
        assert lengths.tolist() == dataset.lengths_of(addresses).tolist() == tokens.ne(PAD).sum(dim=1).tolist()
        assert tokens.eq(2).sum(dim=1).tolist() == [3] * len(tokens)
        for row, length in enumerate(lengths.tolist()):
            ends = tokens[row].eq(2).nonzero()[:, 0].tolist()
            assert tokens[row, 0] == 0 and ends[1] == ends[0] + 1 and ends[2] == length - 1
            assert segments[row].nonzero()[:, 0].tolist() == list(range(ends[1], length))
        positions, labels = batch["predicted"]["positions"], batch["predicted"]["labels"]
        assert positions[:, 0].eq(0).all() and labels[:, 0].eq(PAD).all() and labels.ne(PAD).any()
        assert labels.ne(PAD).sum() == batch["predicted"]["number"] == batch["target"].ne(PAD).sum()
        seen |= set(batch["id"].tolist())
        following += int(batch["sequence_labels"]["nsp"].eq(0).sum())
    assert seen == set(range(len(dataset)))
    assert abs(2 * following - len(dataset)) <= 4  # two files


def test_a_packed_row_holds_the_same_as_the_padded_batch(sources):
    padded, packed = make_dataset(sources), make_dataset(sources, pack=True, pad_to_multiple=8)
    addresses = [(2, index) for index in (3, 40, 100, 7)]
    one, row = padded.__getitems__(addresses), packed.__getitems__(addresses)
    is_token = original(one).ne(PAD)
    num_tokens = int(is_token.sum())
    for of_both in ("src_tokens", "segments"):
        assert torch.equal(row["net_input"][of_both][0, :num_tokens], one["net_input"][of_both][is_token])
    assert torch.equal(row["sequence_labels"]["nsp"], one["sequence_labels"]["nsp"])
    # A model that is given none reads them off the tokens.
    assert torch.equal(segments_of_pairs(original(one))[is_token], one["net_input"]["segments"][is_token])
    positions = row["net_input"]["packing"]["positions"]
    assert torch.equal(segments_of_pairs(original(row), positions), row["net_input"]["segments"])
    cu_seqlens = row["net_input"]["packing"]["cu_seqlens"]
    first = row["predicted"]["positions"][0, row["predicted"]["cu_seqlens"][:4].long()]
    assert torch.equal(first.int(), cu_seqlens[:4])
    labels = row["predicted"]["labels"]
    assert labels.ne(PAD).sum() == one["predicted"]["number"]
    assert torch.equal(row["target"][0, row["predicted"]["positions"][0]][labels[0].ne(PAD)], labels[labels.ne(PAD)])


def test_static_masks_come_with_the_same_pairs_and_each_is_seen_four_times_in_forty_passes(sources):
    dataset = make_dataset(sources, num_static_masks=10)
    seen = {}
    for number in range(1, 41):
        batch = dataset.__getitems__([(number, 11), (number, 70)])
        key = (batch["net_input"]["src_tokens"].numpy().tobytes(), batch["target"].numpy().tobytes())
        seen[key] = seen.get(key, 0) + 1
    assert list(seen.values()) == [4] * 10
    dynamic = make_dataset(sources)
    first, again = (dynamic.__getitems__([(number, 11)]) for number in (1, 11))
    assert not torch.equal(first["target"], again["target"])


def test_what_is_not_wanted_is_left_out(sources):
    dataset = make_dataset(sources, with_segments=False, with_next_sentence=False)
    batch = dataset.__getitems__([(1, 5), (1, 6)])
    assert "segments" not in batch["net_input"] and "sequence_labels" not in batch
    with_both = make_dataset(sources).__getitems__([(1, 5), (1, 6)])
    assert torch.equal(batch["net_input"]["src_tokens"], with_both["net_input"]["src_tokens"])
    assert torch.equal(batch["predicted"]["positions"], with_both["predicted"]["positions"][:, 1:])


def test_batches_by_tokens_keep_their_limit_in_every_epoch(sources):
    for pack in (False, True):
        dataset = make_dataset(sources, pack=pack)
        for epoch in (1, 2):
            seen = []
            for addresses in dataset.batches(epoch, max_tokens=256):
                batch = dataset.__getitems__(addresses)
                assert batch["net_input"]["src_tokens"].numel() <= 256
                seen += batch["id"].tolist()
            assert sorted(seen) == list(range(len(dataset)))


@pytest.mark.parametrize("pack", [False, True])
def test_a_model_reads_the_segments_of_pairs_off_their_tokens(pack, tmp_path):
    model, dataset = pair_model().double(), pair_dataset(tmp_path, pack=pack)
    batch = dataset.__getitems__(some_addresses(dataset))
    given, predicted = batch["net_input"], batch["predicted"]
    expected = model(**given, predicted=predicted)[0]
    assert torch.equal(model(**{**given, "segments": None}, predicted=predicted)[0], expected)
    zeros = torch.zeros_like(given["segments"])
    assert not torch.allclose(model(**{**given, "segments": zeros}, predicted=predicted)[0], expected, rtol=1e-3)
