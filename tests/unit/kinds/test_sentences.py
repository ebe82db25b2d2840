"""Windows of whole sentences: each sentence is scored once, where it has most context."""

from itertools import pairwise

import numpy as np
import pytest

from roberta_plugin.kinds.sentences import SummaryLayout, Window, cut, windows_of


def test_the_example_of_the_docstring():
    assert cut([4] * 6, room=16, stride=8) == [Window(0, 4, 0, 3), Window(2, 6, 3, 6)]
    layout = SummaryLayout(max_length=16, sentence_length=9, doc_stride=8)
    found, num_cut = windows_of([np.array([5, 6]), np.array([7])], layout=layout, bos_id=0, eos_id=2)
    assert [each.tolist() for each in found.sequences] == [[0, 5, 6, 2, 0, 7, 2]]
    assert (found.window.tolist(), found.position.tolist(), num_cut) == ([0, 0], [0, 4], 0)


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


def test_windows_overlap_as_far_as_the_stride_says():
    assert [(each.first, each.stop) for each in cut([5] * 6, room=15, stride=15)] == [(0, 3), (3, 6)]
    assert [(each.first, each.stop) for each in cut([5] * 6, room=15, stride=9)] == [(0, 3), (2, 5), (4, 6)]


def test_memory_grows_with_the_sentences_not_with_their_square():
    windows = cut([5] * 200_000, room=64, stride=32)
    assert [window.best_first for window in windows[1:]] == [window.best_stop for window in windows[:-1]]
    assert windows[-1].best_stop == 200_000


def test_long_sentences_are_cut_and_counted():
    layout = SummaryLayout.of(16, sentence_length=4)
    found, num_cut = windows_of([np.arange(5, 15), np.arange(5, 9)], layout=layout, bos_id=0, eos_id=2)
    assert num_cut == 1
    assert [each.tolist() for each in found.sequences] == [[0, 5, 6, 7, 8, 2] * 2]


def test_the_layout_follows_the_length_of_the_model():
    assert SummaryLayout.of(512) == SummaryLayout(max_length=512, sentence_length=200, doc_stride=256)
    assert SummaryLayout.of(64, doc_stride=9).sentence_length == 62
    with pytest.raises(ValueError, match=r"--max-length 64 leaves 62 tokens for a sentence.*lower --sentence-length"):
        SummaryLayout.of(64, sentence_length=63)
    with pytest.raises(ValueError, match=r"--max-length 2 leaves 0 tokens"):
        SummaryLayout.of(2)
