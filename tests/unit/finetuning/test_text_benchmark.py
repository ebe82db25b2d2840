"""SuperGLUE's metrics against scikit-learn and plain loops."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from roberta_plugin.finetuning.text_benchmark import OF_COUNTS, exact_match, macro_f1
from roberta_plugin.kinds.metrics import confusion


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_is_scikit_learn_s(seed):
    rng = np.random.default_rng(seed)
    answers, predictions = rng.integers(0, 3, 40), rng.integers(0, 2 + seed % 2, 40)
    expected = f1_score(answers, predictions, average="macro", labels=[0, 1, 2], zero_division=0.0)
    assert macro_f1(confusion(answers, predictions, num_classes=3)) == pytest.approx(expected)
    assert 0 < expected < 1


def test_a_class_that_is_nowhere_counts_as_0():
    assert macro_f1(np.diag([3, 2, 0])) == pytest.approx(2 / 3)


def test_a_question_is_right_if_all_its_answers_are():
    rng = np.random.default_rng(0)
    questions, answers = np.repeat(np.arange(60), 3), rng.integers(0, 2, 180)
    predictions = np.where(rng.random(180) < 0.8, answers, 1 - answers)
    right = [all(answers[questions == number] == predictions[questions == number]) for number in range(60)]
    assert exact_match(answers, predictions, questions) == pytest.approx(np.mean(right))
    assert 0.2 < np.mean(right) < 0.8
    counts = confusion(answers, predictions, num_classes=2)
    assert OF_COUNTS["f1a"](counts) == pytest.approx(f1_score(answers, predictions))
