import pytest

from roberta_plugin.finetuning.kinds.metrics import (
    AnswerScore,
    answer_score,
    best_null_threshold,
    normalize,
    squad_metrics,
)


def test_normalization():
    assert normalize("The  U.S., an\u00a0Ally!") == "us ally"
    assert normalize("a an the") == normalize("?!") == normalize("") == ""
    assert normalize("Theatre a-the \u2014 b") == "theatre athe \u2014 b"


def test_scores_are_those_of_the_best_right_answer():
    assert answer_score("squad2", "the big cat", ["dog", "Cat", "a Big Cat!"]) == AnswerScore(1.0, 1.0)
    assert answer_score("squad2", "big cat sat", ["big dog", "cat"]) == AnswerScore(0.0, pytest.approx(0.5))
    assert answer_score("squad1", "cat cat", ["cat"]) == AnswerScore(0.0, pytest.approx(2 / 3))


def test_no_answer_is_right_only_where_there_is_none():
    assert answer_score("squad2", "", []) == answer_score("squad2", "the", []) == AnswerScore(1.0, 1.0)
    assert answer_score("squad2", "cat", []) == answer_score("squad2", "", ["cat"]) == AnswerScore(0.0, 0.0)


def test_the_versions_differ_in_texts_that_are_nothing():
    assert answer_score("squad1", "the", ["a"]) == AnswerScore(1.0, 0.0)
    assert answer_score("squad2", "the", ["a"]) == AnswerScore(1.0, 1.0)
    assert answer_score("squad1", "cat", ["a"]) == answer_score("squad2", "cat", ["a"]) == AnswerScore(0.0, 0.0)
    assert answer_score("squad2", "", ["a", "cat"]) == AnswerScore(0.0, 0.0), "an answer that is nothing does not count"


def test_the_threshold_lets_pass_what_pays():
    found = best_null_threshold(
        [1.0, 0.0, 0.0, 1.0], null=[0.1, 0.2, 0.9, 0.8], has_answer=[True, True, False, True], is_given=[True] * 4
    )
    assert found == (75.0, 0.8), "the two right answers pass, and with them the wrong one; the last question does not"


def test_the_threshold_is_0_where_no_answer_is_best_always():
    found = best_null_threshold([0.2, 0.0], null=[0.5, 0.4], has_answer=[True, False], is_given=[True, True])
    assert found == (50.0, 0.0)


def test_an_empty_answer_costs_nothing():
    found = best_null_threshold([0.5, 1.0], null=[0.5, 0.4], has_answer=[True, False], is_given=[True, False])
    assert found == (75.0, 0.5)


def test_evaluation_of_both_versions():
    right, given = [["cat"], ["big dog"], []], ["the cat", "dog", "x"]
    assert squad_metrics("squad1", right[:2], given[:2]) == {"exact": 50.0, "f1": pytest.approx(100 * (1 + 2 / 3) / 2)}
    found = squad_metrics("squad2", right, given, [0.2, 0.9, 0.4])
    assert found["exact"] == pytest.approx(100 / 3)
    assert (found["HasAns_exact"], found["NoAns_exact"], found["NoAns_f1"]) == (50.0, 0.0, 0.0)
    assert found["HasAns_f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert (found["best_exact"], found["best_exact_thresh"]) == (pytest.approx(200 / 3), 0.2)
    assert (found["best_f1"], found["best_f1_thresh"]) == (pytest.approx(200 / 3), 0.2)
    assert "NoAns_f1" not in squad_metrics("squad2", [["cat"]], ["the cat"])
