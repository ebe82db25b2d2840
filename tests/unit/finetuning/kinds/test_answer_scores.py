"""Exact match and F1 of answers."""

import pytest

from roberta_plugin.finetuning.kinds.answer_scores import AnswerScore, answer_score, normalize


def test_normalization():
    assert normalize("The  U.S., an\u00a0Ally!") == "us ally"
    assert normalize("a an the") == normalize("?!") == normalize("") == ""
    assert normalize("Theatre a-the \u2014 b") == "theatre athe \u2014 b"


@pytest.mark.parametrize(
    ("task", "given", "right", "exact", "f1"),
    [
        ("squad2", "the big cat", ["dog", "Cat", "a Big Cat!"], 1, 1),
        ("squad2", "big cat sat", ["big dog", "cat"], 0, 0.5),
        ("squad1", "cat cat", ["cat"], 0, 2 / 3),
        *(("squad2", given, [], 1, 1) for given in ("", "the")),  # no answer is right only where there is none
        ("squad2", "cat", [], 0, 0),
        ("squad2", "", ["cat"], 0, 0),
        ("squad1", "the", ["a"], 1, 0),  # the versions differ in texts that are nothing
        ("squad2", "the", ["a"], 1, 1),
        *((task, "cat", ["a"], 0, 0) for task in ("squad1", "squad2")),
        ("squad2", "", ["a", "cat"], 0, 0),  # an answer that is nothing does not count
    ],
)
def test_scores_are_those_of_the_best_right_answer(task, given, right, exact, f1):
    assert answer_score(given, right, may_be_empty=task == "squad2") == AnswerScore(exact, pytest.approx(f1))
