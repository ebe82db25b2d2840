"""Metrics of counts, numbers and answers; weights stand for examples that occur as often."""

import numpy as np
import pytest

from roberta_plugin.finetuning.kinds import metrics

rng = np.random.default_rng(0)
WEIGHTS = rng.integers(0, 4, 60)
REPEATED = np.repeat(np.arange(60), WEIGHTS)


def test_metrics_of_counts_of_the_right_class_in_rows():
    counts = metrics.confusion(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0]), num_classes=3)
    assert counts.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    counts = np.array([[3, 2], [1, 4]])
    assert metrics.accuracy(counts) == pytest.approx(0.7)
    assert metrics.f1(counts) == pytest.approx(8 / 11)
    assert metrics.acc_and_f1(counts) == pytest.approx((0.7 + 8 / 11) / 2)
    assert metrics.mcc(counts) == pytest.approx((3 * 4 - 2 * 1) / np.sqrt(5 * 5 * 4 * 6))


def test_metrics_of_predictions_in_units_of_the_label():
    predictions, answers = np.array([1.0, 2.0, 2.0, 9.0]), np.array([0.0, 1.0, 3.0, 4.0])
    assert metrics.pearson(predictions, 3 - 2 * predictions) == pytest.approx(-1.0)
    assert metrics.spearman(predictions, answers) == pytest.approx(
        metrics.pearson(np.array([1, 2.5, 2.5, 4]), np.array([1, 2, 3, 4]))
    )
    found = metrics.measure_numbers(answers, predictions, np.ones(4))
    assert found["pearson_spearman"] == pytest.approx((found["pearson"] + found["spearman"]) / 2)
    found = metrics.measure_numbers(np.array([1.0, 3.0]), np.array([1.0, 7.0]), np.ones(2))
    assert (found["mae"], found["rmse"]) == (2.0, pytest.approx(np.sqrt(8)))
    assert metrics.measure_numbers(np.array([1.0, 3.0]), np.array([1.0, 7.0]), np.array([3.0, 1.0]))["mae"] == 1.0


def test_what_is_not_defined_is_0_and_not_an_error():
    assert metrics.mcc(np.array([[5, 0], [5, 0]])) == 0
    assert metrics.f1(np.array([[5, 0], [0, 0]])) == 0
    assert metrics.pearson(np.ones(4), np.arange(4)) == 0
    assert metrics.spearman(np.arange(4), np.ones(4)) == 0
    assert metrics.measure_numbers(np.zeros(3), np.arange(3.0), np.ones(3))["pearson"] == 0.0
    constants = metrics.measure_numbers(np.full(40, 5.0), np.full(40, 9.3), np.ones(40))
    assert constants["pearson"] == constants["spearman"] == 0.0
    nothing, expected = np.zeros((3, 2), dtype=bool), {"micro_f1": 0.0, "macro_f1": 0.0, "exact_match": 100.0}
    assert metrics.measure_labels(nothing, nothing, np.ones(3)) == expected


@pytest.mark.parametrize(
    ("measure", "answers", "predictions"),
    [
        (lambda *each: metrics.measure_classes(*each, num_classes=4), rng.integers(0, 4, 60), rng.integers(0, 4, 60)),
        (metrics.measure_labels, rng.random((60, 5)) < 0.3, rng.random((60, 5)) < 0.4),
        (metrics.measure_numbers, rng.integers(0, 9, 60).astype(float), rng.integers(0, 9, 60) + rng.normal(size=60)),
    ],
    ids=["classes", "labels", "numbers"],
)
def test_a_weight_is_how_often_an_example_occurs(measure, answers, predictions):
    assert WEIGHTS.min() == 0 and WEIGHTS.max() > 1
    weighted = measure(answers, predictions, WEIGHTS.astype(float))
    repeated = measure(answers[REPEATED], predictions[REPEATED], np.ones(len(REPEATED)))
    assert weighted == pytest.approx(repeated, abs=1e-9)
    assert any(abs(weighted[name] - value) > 0.1 for name, value in measure(answers, predictions, np.ones(60)).items())


def test_the_best_threshold_is_found_and_of_equal_ones_the_middle():
    answers = np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)
    probabilities = np.where(answers, 0.3, 0.1)
    found = metrics.micro_f1s(probabilities, answers)
    assert found.shape == (99,)
    assert metrics.best_threshold(probabilities, answers) == 0.3  # all from 0.11 to 0.3 are perfect
    assert found[29] == 1.0
    assert found[0] == pytest.approx(8 / 10)  # everything is predicted: 4 of 6 are right
    assert found[-1] == 0.0


@pytest.mark.parametrize("metric", ["accuracy", "f1", "macro_f1", "mcc", "acc_and_f1"])
@pytest.mark.parametrize("decimals", [1, 17])
def test_the_tuned_threshold_is_the_best_of_all(metric, decimals):
    rng = np.random.default_rng(decimals)
    answers = rng.integers(0, 2, 80)
    probabilities = (0.003 * rng.random(80) + 0.001 * answers).round(decimals)  # far below the steps of a fixed grid
    probabilities[:3] = 0.0, 1.0, 0.6
    of_metric = metrics.OF_COUNTS[metric]

    def value(threshold):
        return of_metric(metrics.confusion(answers, probabilities >= threshold, num_classes=2))

    found = metrics.tuned_threshold(probabilities, answers, metric)
    assert value(found) == max(map(value, np.unique(probabilities)))
    assert decimals == 1 or value(found) > max(map(value, metrics.THRESHOLDS))


def test_of_thresholds_that_decide_alike_the_middle_or_a_half_is_taken():
    def tuned(probabilities, answers):
        return metrics.tuned_threshold(np.array(probabilities), np.array(answers), "accuracy")

    assert tuned([0.1, 0.2, 0.3], [0, 1, 1]) == pytest.approx(0.15)
    assert tuned([0.1, 0.4, 0.8], [0, 0, 1]) == 0.5
    assert tuned([0.9, 0.9, 0.8], [0, 1, 0]) == pytest.approx(0.85), "of equal ones the nearest to a half"
    assert tuned([0.6, 0.7], [0, 0]) == pytest.approx(0.85), "no row is of class 1"
    assert tuned([0.0, 1.0], [0, 1]) == 0.5
    assert tuned([0.9, 1.0], [0, 0]) == pytest.approx(0.95), "none lies above a probability of 1"
    close = np.nextafter(0.2, 1)
    assert tuned([0.2, close], [0, 1]) == close, "a threshold equal to the lower one would predict it too"


def test_a_question_is_right_if_all_its_answers_are():
    draw = np.random.default_rng(0)
    questions, answers = np.repeat(np.arange(60), 3), draw.integers(0, 2, 180)
    predictions = np.where(draw.random(180) < 0.8, answers, 1 - answers)
    right = [all(answers[questions == number] == predictions[questions == number]) for number in range(60)]
    assert metrics.exact_match(answers, predictions, questions) == pytest.approx(np.mean(right))
    assert 0.2 < np.mean(right) < 0.8
