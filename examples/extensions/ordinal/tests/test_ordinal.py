"""CORAL's head and loss against the formulas in float64, and the metrics against scikit-learn."""

from types import SimpleNamespace

import numpy as np
import torch
from ordinal.kind import label_probabilities, predicted, quadratic_kappa
from ordinal.training import OrdinalTraining
from sklearn.metrics import cohen_kappa_score

from roberta_plugin.registry import HEADS, KINDS

SIZE = 5


def test_the_loss_is_equation_4_of_the_paper():
    torch.manual_seed(1)
    logits, ranks = torch.randn(7, SIZE - 1, dtype=torch.float64, requires_grad=True), torch.arange(7) % SIZE
    training = OrdinalTraining(SimpleNamespace(window_pooling=None), SimpleNamespace(), None)
    total, number, _ = training.loss(None, logits, {"columns": {"label": ranks}})
    expected = 0
    for row, rank in zip(logits, ranks.tolist(), strict=True):
        for k in range(SIZE - 1):
            p = torch.sigmoid(row[k])
            expected = expected - (torch.log(p) if rank > k else torch.log(1 - p))
    assert number == 7
    torch.testing.assert_close(total, expected)


def test_a_label_is_how_many_thresholds_are_passed():
    logits = np.array([[3.0, 2.0, 1.0, 0.5], [3.0, 0.1, -0.1, -2.0], [-1.0, -2.0, -3.0, -4.0]])
    assert predicted([logits]).tolist() == [4, 2, 0]
    probabilities = label_probabilities([logits])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    above = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(probabilities[:, 0], 1 - above[:, 0])
    np.testing.assert_allclose(probabilities[:, 2], above[:, 1] - above[:, 2])


def test_kappa_is_scikit_learn_s():
    rng = np.random.default_rng(0)
    right, found = rng.integers(0, SIZE, 200), rng.integers(0, SIZE, 200)
    counts = np.zeros((SIZE, SIZE))
    np.add.at(counts, (right, found), 1)
    assert np.isclose(quadratic_kappa(counts), cohen_kappa_score(right, found, weights="quadratic"))


def test_the_registry_has_it():
    assert KINDS.owner("ordinal").package == "ordinal 1.0"
    assert HEADS.load("coral", "head").kind == "coral"
