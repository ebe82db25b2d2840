"""How texts and sentences become sequences of limited length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roberta_plugin.finetuning.layouts.texts import Encoder, TextLayout, inputs_of, spread
from tests.tiny_benchmarks import words_tokenizer

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
