"""Intervals cover what they should, and are the same every time."""

import numpy as np
import pytest
import scipy.stats

from roberta_plugin.finetuning.benchmarks.custom import intervals


def accuracy(is_right):
    return lambda weights: {"accuracy": 100 * float(weights @ is_right / weights.sum())}


def test_an_interval_of_an_accuracy_is_nearly_that_of_the_binomial_distribution():
    is_right = np.arange(400) < 320
    low, high = intervals(accuracy(is_right), 400)["accuracy"]
    wanted = [value / 4 for value in scipy.stats.binom(400, 0.8).interval(0.95)]
    assert (low, high) == (pytest.approx(wanted[0], abs=0.6), pytest.approx(wanted[1], abs=0.6))
    assert intervals(accuracy(is_right), 400)["accuracy"] == (low, high)


def test_intervals_of_95_percent_hold_the_true_value_in_about_95_percent_of_all_samples():
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(40):
        low, high = intervals(accuracy(rng.random(100) < 0.7), 100)["accuracy"]
        covered += low <= 70 <= high
    assert 34 <= covered <= 40
