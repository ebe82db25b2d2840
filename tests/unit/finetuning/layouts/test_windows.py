import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roberta_plugin.data.tokenizers.base import LocatedTokens
from roberta_plugin.finetuning.layouts.windows import Window, WindowLayout, cut, is_blank, tokens_of


def test_the_examples_of_the_documentation():
    assert cut(7, room=7, stride=2) == [Window(0, 7, 0, 7)], "a short passage"
    assert cut(12, room=6, stride=3) == [Window(0, 6, 0, 5), Window(3, 6, 5, 8), Window(6, 6, 8, 12)]


def test_windows_overlap_and_the_last_one_ends_with_the_passage():
    def parts(*passage, **layout):
        return [(window.start, window.length) for window in cut(*passage, **layout)]

    assert parts(20, room=10, stride=4) == [(0, 10), (4, 10), (8, 10), (12, 8)]
    assert parts(9, room=4, stride=100) == [(0, 4), (4, 4), (8, 1)], "a stride beyond the window leaves nothing out"


def best_window(token, windows):
    """The rule as BERT has it: the greatest smaller distance to an end, plus a hundredth of the length."""
    scores = []
    for window in windows:
        left, right = token - window.start, window.start + window.length - 1 - token
        scores.append(min(left, right) + 0.01 * window.length if left >= 0 and right >= 0 else -1)
    return scores.index(max(scores))


@given(num_tokens=st.integers(1, 200), room=st.integers(1, 60), stride=st.integers(1, 70))
@example(num_tokens=200, room=60, stride=7)
def test_every_token_is_in_a_window_and_has_the_best_one_by_definition(num_tokens, room, stride):
    windows = cut(num_tokens, room=room, stride=stride)
    seen = np.zeros(num_tokens, dtype=int)
    for window in windows:
        assert 1 <= window.length <= room
        seen[window.start : window.start + window.length] += 1
    assert seen.all()
    assert sum(window.best_stop - window.best_start for window in windows) == num_tokens
    for number, window in enumerate(windows):
        for token in range(window.best_start, window.best_stop):
            assert best_window(token, windows) == number


def test_a_book_is_cut_in_linear_time_and_memory():
    windows = cut(1_000_000, room=62, stride=31)
    assert [window.best_stop for window in windows[:-1]] == [window.best_start for window in windows[1:]]
    assert windows[-1].best_stop == 1_000_000


def test_tokens_of_characters():
    # "a", " bc", first part and second part of a character, a mark of no character, "de"
    tokens = LocatedTokens(np.arange(6), np.array([0, 1, 4, 4, 5, 5]), np.array([1, 4, 5, 5, 5, 7]))
    spans = (0, 1), (2, 4), (4, 5), (5, 6), (3, 7)
    assert [tokens_of(tokens, *span) for span in spans] == [(0, 0), (1, 1), (2, 3), (5, 5), (1, 5)]
    gap = LocatedTokens(np.arange(2), np.array([0, 4]), np.array([2, 6]))
    assert tokens_of(gap, 2, 4) is None
    tokens = LocatedTokens(np.arange(5), np.array([0, 1, 2, 2, 3]), np.array([1, 2, 2, 4, 4]))
    assert is_blank("a\u3000 b", tokens).tolist() == [False, True, True, False, False], "white space, or nothing"


def test_a_window_holds_what_lies_wholly_in_it():
    window = Window(10, 5, 10, 15)
    assert [window.holds(span) for span in ((10, 14), (12, 12), (9, 11), (14, 15))] == [True, True, False, False]


def test_the_papers_layout_and_others():
    assert WindowLayout.with_defaults(512) == WindowLayout(max_length=512, question_length=64, doc_stride=128)
    assert WindowLayout.with_defaults(384, question_length=32, doc_stride=64) == WindowLayout(
        max_length=384, question_length=32, doc_stride=64
    )
    short = WindowLayout.with_defaults(160)  # room for 92 tokens of the passage
    assert short.doc_stride == 46, "windows of a short model overlap by half"
    with pytest.raises(ValueError, match="--max-length 68 leaves no token for the passage"):
        WindowLayout.with_defaults(68)
    assert WindowLayout.with_defaults(69).max_length == 69
