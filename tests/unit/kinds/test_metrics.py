"""GLUE's metrics on small cases that can be worked out by hand; parity with scikit-learn is in tests/parity."""

import numpy as np
import pytest

from roberta_plugin.kinds import metrics

COUNTS = np.array([[3, 2], [1, 4]])


def test_confusion_has_the_right_class_in_rows():
    counts = metrics.confusion(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0]), num_classes=3)
    assert counts.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_metrics_of_counts():
    assert metrics.accuracy(COUNTS) == pytest.approx(0.7)
    assert metrics.f1(COUNTS) == pytest.approx(8 / 11)
    assert metrics.acc_and_f1(COUNTS) == pytest.approx((0.7 + 8 / 11) / 2)
    assert metrics.mcc(COUNTS) == pytest.approx((3 * 4 - 2 * 1) / np.sqrt(5 * 5 * 4 * 6))


def test_metrics_of_predictions():
    predictions, answers = np.array([1.0, 2.0, 2.0, 9.0]), np.array([0.0, 1.0, 3.0, 4.0])
    assert metrics.pearson(predictions, 3 - 2 * predictions) == pytest.approx(-1.0)
    assert metrics.spearman(predictions, answers) == pytest.approx(
        metrics.pearson(np.array([1, 2.5, 2.5, 4]), np.array([1, 2, 3, 4]))
    )
    both = (metrics.pearson(predictions, answers) + metrics.spearman(predictions, answers)) / 2
    assert metrics.pearson_spearman(predictions, answers) == pytest.approx(both)


def test_what_is_not_defined_is_0():
    assert metrics.mcc(np.array([[5, 0], [5, 0]])) == 0
    assert metrics.f1(np.array([[5, 0], [0, 0]])) == 0
    assert metrics.pearson(np.ones(4), np.arange(4)) == 0
    assert metrics.spearman(np.arange(4), np.ones(4)) == 0
