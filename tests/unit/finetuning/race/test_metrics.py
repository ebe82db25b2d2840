"""Accuracies of each level and of all."""

import numpy as np

from roberta_plugin.kinds.choices import accuracies


def test_accuracies_are_exact_quotients_for_each_level_and_all():
    given = np.array([0, 1, 2, 0, 1, 3, 0])
    labels = np.array([0, 1, 1, 0, 0, 3, 1])
    levels = np.array([0, 0, 0, 1, 1, 1, 1])
    assert accuracies(given, labels, levels) == {
        "accuracy": 100 * 4 / 7,
        "accuracy_middle": 100 * 2 / 3,
        "accuracy_high": 100 * 2 / 4,
    }
    assert accuracies(given, labels, np.full(7, -1)) == {"accuracy": 100 * 4 / 7}
    labels[3:] = -1
    assert accuracies(given, labels, levels) == {"accuracy": 100 * 2 / 3, "accuracy_middle": 100 * 2 / 3}
    assert accuracies(given, np.full(7, -1), levels) == {}
