"""Exact match and F1 of answers."""

import pytest

from roberta_plugin.finetuning.kinds.answer_scores import AnswerScore, answer_score, normalize


def test_normalization():
    assert normalize("The  U.S., an\u00a0Ally!") == "us ally"
    assert normalize("a an the") == normalize("?!") == normalize("") == ""
    assert normalize("Theatre a-the \u2014 b") == "theatre athe \u2014 b"


@pytest.mark.parametrize(
    ("may_be_empty", "given", "right", "exact", "f1"),
    [
        (True, "the big cat", ["dog", "Cat", "a Big Cat!"], 1, 1),
        (True, "big cat sat", ["big dog", "cat"], 0, 0.5),
        (False, "cat cat", ["cat"], 0, 2 / 3),
        *((True, given, [], 1, 1) for given in ("", "the")),  # no answer is right only where there is none
        (True, "cat", [], 0, 0),
        (True, "", ["cat"], 0, 0),
        (False, "the", ["a"], 1, 0),  # the versions differ in texts that are nothing
        (True, "the", ["a"], 1, 1),
        *((may_be_empty, "cat", ["a"], 0, 0) for may_be_empty in (False, True)),
        (True, "", ["a", "cat"], 0, 0),  # an answer that is nothing does not count
    ],
)
def test_scores_are_those_of_the_best_right_answer(may_be_empty, given, right, exact, f1):
    assert answer_score(given, right, may_be_empty=may_be_empty) == AnswerScore(exact, pytest.approx(f1))
