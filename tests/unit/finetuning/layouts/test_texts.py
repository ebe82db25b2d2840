"""How texts and sentences become sequences of limited length."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from roberta_plugin.finetuning.layouts.texts import Encoder, TextLayout, inputs_of, spread
from tests.tiny_benchmarks import words_tokenizer
from tests.tiny_summaries import write_prepared, write_raw

ENCODER = Encoder(*words_tokenizer())
BOS, EOS = 0, 2


def ids_of(text):
    return ENCODER.ids(text).tolist()


def read(*texts, is_training=False, **layout):
    (found,) = inputs_of([texts], ENCODER, TextLayout(max_length=12, **layout), is_training=is_training)
    assert all(len(sequence) <= 12 for sequence in found.sequences)
    return [sequence.tolist() for sequence in found.sequences], found.is_cut


@pytest.mark.parametrize(
    ("form", "kept"),
    [(None, "abcdefghij"), ("tail", "qrstuvwxyz"), ("head+tail", "abc" + "tuvwxyz"), ("windows", None)],
)
def test_head_tail_and_both_of_a_long_text_and_the_whole_of_one_that_fits(form, kept):
    assert read("abcdefghij", long_texts=form) == ([[BOS, *ids_of("abcdefghij"), EOS]], False)
    if kept:
        assert read("abcdefghijklmnopqrstuvwxyz", long_texts=form) == ([[BOS, *ids_of(kept), EOS]], True)


def test_head_and_tail_are_those_of_the_paper():
    """Sun et al. 2019, section 5.3.1: the first 128 and the last 382 tokens of 510."""
    text = "".join(chr(97 + number % 26) for number in range(2000))
    (found,) = inputs_of([(text,)], ENCODER, TextLayout(max_length=512, long_texts="head+tail"))
    ids = ids_of(text)
    assert found.sequences[0].tolist() == [BOS, *ids[:128], *ids[-382:], EOS]


def test_both_texts_of_a_pair_are_cut_and_windows_divide_the_longer_one():
    def pairs(firsts, seconds):
        return [[BOS, *ids_of(a), EOS, EOS, *ids_of(b), EOS] for a in firsts for b in seconds]

    assert read("abcdefghijklmnop", "xyz", long_texts="tail") == (pairs(["lmnop"], ["xyz"]), True)
    assert read("abcdefghijkl", "xy", long_texts="windows") == (pairs(["abcdef", "ghijkl"], ["xy"]), False)
    # of the shorter text two tokens are not read
    assert read("uvwxyz", "abcdefghijkl", long_texts="windows") == (pairs(["uvwx"], ["abcd", "efgh", "ijkl"]), True)


def test_windows_are_fewer_in_training_alone_and_a_text_with_gaps_counts_as_cut():
    text, layout = "abcdefghijklmnopqrstuvwxyz", {"long_texts": "windows", "max_windows": 2}
    found, is_cut = read(text, **layout)
    assert len(found) == 3 and not is_cut
    assert {token for window in found for token in window[1:-1]} == set(ids_of(text))
    expected = [[BOS, *ids_of(part), EOS] for part in ("abcdefghij", "qrstuvwxyz")]
    assert read(text, is_training=True, **layout) == (expected, True)


@given(num_tokens=st.integers(1, 300), room=st.integers(1, 40), stride=st.integers(1, 40), most=st.integers(1, 9))
def test_windows_are_even_full_and_reach_both_ends(num_tokens, room, stride, most):
    stride = min(stride, room)
    starts = np.array(spread(num_tokens, room=room, stride=stride))
    assert starts[0] == 0 and starts[-1] == max(0, num_tokens - room)
    steps = np.diff(starts)
    assert (steps <= stride).all() and (steps > 0).all()
    assert len(steps) == 0 or steps.max() - steps.min() <= 1
    fewer = spread(num_tokens, room=room, stride=stride, most=most)
    assert len(fewer) == min(len(starts), most) and fewer[0] == 0
    assert len(fewer) == 1 or fewer[-1] == starts[-1]


@pytest.mark.parametrize(
    "entry",
    [
        {"long_texts": "middle"},
        {"long_texts": "windows", "window_pooling": "sum"},
        {"long_texts": "tail", "window_pooling": "max"},
        {"window_stride": 0},
        {"max_windows": True},
    ],
)
def test_values_of_a_file_that_cannot_be_are_named(entry):
    with pytest.raises(ValueError, match=list(entry)[-1]):
        TextLayout(max_length=12, **entry).checked()


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
