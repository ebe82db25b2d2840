"""How the sentences of a document become sequences of limited length."""

from itertools import pairwise

import numpy as np
import pytest

from roberta_plugin.extensions.summaries.dataset import DocumentsDataset
from roberta_plugin.extensions.summaries.layout import (
    SummaryLayout,
    Window,
    by_document,
    cut,
    packed_layout,
    padded_layout,
    segments_of,
    windows_of,
)
from tests.tiny_summaries import write_prepared, write_raw


def test_the_example_of_the_docstring_and_long_sentences_are_cut_and_counted():
    assert cut([4] * 6, room=16, stride=8) == [Window(0, 4, 0, 3), Window(2, 6, 3, 6)]
    layout = SummaryLayout(max_length=16, sentence_length=9, doc_stride=8)
    found, num_cut = windows_of([np.array([5, 6]), np.array([7])], layout=layout, bos_id=0, eos_id=2)
    assert [each.tolist() for each in found.sequences] == [[0, 5, 6, 2, 0, 7, 2]]
    assert (found.window.tolist(), found.position.tolist(), num_cut) == ([0, 0], [0, 4], 0)
    layout = SummaryLayout.with_defaults(16, sentence_length=4)
    found, num_cut = windows_of([np.arange(5, 15), np.arange(5, 9)], layout=layout, bos_id=0, eos_id=2)
    assert num_cut == 1
    assert [each.tolist() for each in found.sequences] == [[0, 5, 6, 7, 8, 2] * 2]


@pytest.mark.parametrize("seed", range(40))
def test_every_sentence_has_one_best_window_that_gives_it_most_context(seed):
    rng = np.random.default_rng(seed)
    room = int(rng.integers(5, 60))
    lengths = rng.integers(3, room + 1, rng.integers(1, 40)).tolist()
    windows = cut(lengths, room=room, stride=int(rng.integers(1, room + 10)))
    ends = np.cumsum(lengths)
    owned = [number for window in windows for number in range(window.best_first, window.best_stop)]
    assert owned == list(range(len(lengths)))
    assert windows[0].first == 0 and windows[-1].stop == len(lengths)
    for before, after in pairwise(windows):
        assert before.first < after.first <= before.stop, "no sentence is left out"
    for window in windows:
        assert sum(lengths[window.first : window.stop]) <= room
        assert window.stop == len(lengths) or sum(lengths[window.first : window.stop + 1]) > room, "as many as fit"
        for number in range(window.best_first, window.best_stop):

            def score(other, number=number):
                start, stop = ends[other.first] - lengths[other.first], ends[other.stop - 1]
                context = min(ends[number] - lengths[number] - start, stop - ends[number])
                return context + 0.01 * (stop - start)

            holding = [other for other in windows if other.first <= number < other.stop]
            assert window in holding
            assert score(window) >= max(map(score, holding)) - 1e-9


def test_windows_overlap_as_far_as_the_stride_says_and_memory_grows_with_the_sentences():
    assert [(each.first, each.stop) for each in cut([5] * 6, room=15, stride=15)] == [(0, 3), (3, 6)]
    assert [(each.first, each.stop) for each in cut([5] * 6, room=15, stride=9)] == [(0, 3), (2, 5), (4, 6)]
    windows = cut([5] * 200_000, room=64, stride=32)  # not with their square
    assert [window.best_first for window in windows[1:]] == [window.best_stop for window in windows[:-1]]
    assert windows[-1].best_stop == 200_000


def test_the_layout_follows_the_length_of_the_model():
    assert SummaryLayout.with_defaults(512) == SummaryLayout(max_length=512, sentence_length=200, doc_stride=256)
    assert SummaryLayout.with_defaults(64, doc_stride=9).sentence_length == 62
    with pytest.raises(ValueError, match=r"--max-length 64 leaves 62 tokens for a sentence.*lower --sentence-length"):
        SummaryLayout.with_defaults(64, sentence_length=63)
    with pytest.raises(ValueError, match=r"--max-length 2 leaves 0 tokens"):
        SummaryLayout.with_defaults(2)


def test_the_examples_of_the_layouts():
    row, position = np.array([0, 1, 0]), np.array([0, 3, 5])
    padded = padded_layout(row, position, num_rows=2)
    assert padded["positions"].tolist() == [[0, 5], [3, 0]]
    assert padded["index"].tolist() == [0, 2, 1]
    packed = packed_layout(row, position, lengths=np.array([9, 7]), num_sequences=3)
    assert packed["positions"].tolist() == [[0, 5, 12]]
    assert packed["index"].tolist() == [0, 2, 1]
    assert (packed["cu_seqlens"].tolist(), packed["max_seqlen"]) == ([0, 2, 3, 3], 2)
    places = by_document(np.array([2, 3]))
    assert (places["document"].tolist(), places["place"].tolist()) == ([0, 0, 1, 1, 1], [0, 1, 0, 1, 2])
    assert (places["num_documents"], places["longest"]) == (2, 3)


def test_segments_alternate_from_sentence_to_sentence_and_begin_anew_in_each_window():
    tokens = np.array([[0, 5, 2, 0, 6, 7, 2], [0, 5, 5, 5, 5, 5, 2]])
    expected = [[0, 0, 0, 1, 1, 1, 1], [0] * 7]
    assert segments_of(tokens, bos_id=0).tolist() == expected
    packed = segments_of(tokens.reshape(1, -1), bos_id=0, starts=np.array([0, 7]))
    assert packed.tolist() == [[*expected[0], *expected[1]]]


def test_batches_keep_to_max_tokens_whatever_windows_their_documents_have(tmp_path):
    raw = write_raw(tmp_path / "raw", sizes={"train": 20})
    with (raw / "train.jsonl").open("a") as file:
        for number in range(10):
            text = ", ".join(['"xyz good"'] * (1 + number % 3))
            file.write(f'{{"id": {number}, "text": [{text}], "summary": "good"}}\n')
    split = write_prepared(tmp_path, raw=raw).split("train")
    assert set(np.diff(split.offsets).tolist()) >= {1, 2}
    is_short, widths = np.diff(split.offsets) == 1, split.sequences.sizes[split.offsets[:-1]]
    for pack in (False, True):
        dataset = DocumentsDataset(split, pad_id=1, vocab_size=1000, seed=1, pack=pack, max_length=64)
        sizes = [dataset.__getitems__(each)["npositions"] for each in dataset.batches(1, max_tokens=400)]
        assert 200 < max(sizes) <= 400
        assert dataset.sizes[is_short].tolist() == widths[is_short].tolist(), "short documents take what they have"
