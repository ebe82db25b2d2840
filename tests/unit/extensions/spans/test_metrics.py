"""The metrics of SQuAD's official scripts."""

import pytest

from roberta_plugin.extensions.spans.metrics import best_null_threshold, squad_metrics


@pytest.mark.parametrize(
    ("scores", "null", "has_answer", "is_given", "expected"),
    [  # the two right answers pass, and with them the wrong one; the last question does not
        ([1, 0, 0, 1], [0.1, 0.2, 0.9, 0.8], [True, True, False, True], [True] * 4, (75.0, 0.8)),
        ([0.2, 0], [0.5, 0.4], [True, False], [True, True], (50.0, 0.0)),  # no answer is best always
        ([0.5, 1], [0.5, 0.4], [True, False], [True, False], (75.0, 0.5)),  # an empty answer costs nothing
    ],
)
def test_the_threshold_lets_pass_what_pays(scores, null, has_answer, is_given, expected):
    assert best_null_threshold(scores, null=null, has_answer=has_answer, is_given=is_given) == expected


def test_evaluation_of_both_versions():
    right, given = [["cat"], ["big dog"], []], ["the cat", "dog", "x"]
    assert squad_metrics("squad1", right[:2], given[:2]) == {
        "exact_match": 50.0,
        "f1": pytest.approx(100 * (1 + 2 / 3) / 2),
    }
    found = squad_metrics("squad2", right, given, [0.2, 0.9, 0.4])
    assert found["exact_match"] == pytest.approx(100 / 3)
    assert (found["HasAns_exact_match"], found["NoAns_exact_match"], found["NoAns_f1"]) == (50.0, 0.0, 0.0)
    assert found["HasAns_f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert (found["best_exact_match"], found["best_exact_match_thresh"]) == (pytest.approx(200 / 3), 0.2)
    assert (found["best_f1"], found["best_f1_thresh"]) == (pytest.approx(200 / 3), 0.2)
    assert "NoAns_f1" not in squad_metrics("squad2", [["cat"]], ["the cat"])
