"""Metrics of own data equal those of scikit-learn and SciPy, also where a label does not occur."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics as sk

from roberta_plugin.finetuning.kinds import metrics


@pytest.mark.parametrize("seed", range(4))
def test_metrics_of_classes_and_their_table_are_scikit_learn_s(seed):
    rng = np.random.default_rng(seed)
    answers = rng.integers(0, 4, 90)  # of five classes, the last does not occur
    predictions = np.where(rng.random(90) < 0.6, answers, rng.integers(0, 3, 90))
    predictions[: seed % 2] = 4  # but is predicted
    found = metrics.measure_classes(answers, predictions, np.ones(90), num_classes=5)
    wanted = {
        "accuracy": sk.f1_score(answers, predictions, average="micro"),
        "macro_f1": sk.f1_score(answers, predictions, average="macro"),
        "mcc": sk.matthews_corrcoef(answers, predictions),
    }
    assert found == pytest.approx({name: 100 * value for name, value in wanted.items()}, abs=1e-9)

    counts = metrics.confusion(answers, predictions, np.ones(90), num_classes=5)
    table = metrics.class_table(counts.diagonal(), counts.sum(axis=0), counts.sum(axis=1), list("abcde"))
    parts = sk.precision_recall_fscore_support(answers, predictions, labels=range(5), zero_division=0)
    for row, precision, recall, f1, support in zip(table, *parts, strict=True):
        assert row["support"] == support
        shares = [row["precision"], row["recall"], row["f1"]]
        assert shares == (pytest.approx([100 * precision, 100 * recall, 100 * f1]) if support else [None] * 3)
    assert table[4]["support"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_metrics_of_several_labels_are_scikit_learn_s(seed):
    rng = np.random.default_rng(seed)
    answers = rng.random((70, 6)) < [0.5, 0.3, 0.2, 0.1, 0.05, 0]
    predictions = answers ^ (rng.random((70, 6)) < 0.2)
    found = metrics.measure_labels(answers, predictions, np.ones(70))
    wanted = {
        "micro_f1": sk.f1_score(answers, predictions, average="micro"),
        "macro_f1": sk.f1_score(answers, predictions, average="macro", zero_division=0),
        "exact_match": sk.accuracy_score(answers, predictions),
    }
    assert found == pytest.approx({name: 100 * value for name, value in wanted.items()}, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_correlations_are_scipy_s(seed):
    rng = np.random.default_rng(seed)
    answers = 1e6 + rng.integers(0, 9, 50) / 10
    predictions = 3 * answers + rng.normal(size=50)
    predictions[:9] = predictions[9:18]
    found = metrics.measure_numbers(answers, predictions, np.ones(50))
    assert found["pearson"] == pytest.approx(100 * scipy.stats.pearsonr(predictions, answers)[0], abs=1e-6)
    assert found["spearman"] == pytest.approx(100 * scipy.stats.spearmanr(predictions, answers)[0], abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_roc_auc_and_average_precision_are_scikit_learn_s_with_ties_and_weights(seed):
    rng = np.random.default_rng(seed)
    answers, scores = rng.integers(0, 2, 80), rng.normal(size=80).round(seed % 3)
    scores += 0.5 * answers
    for weights in (np.ones(80), rng.integers(0, 4, 80), rng.random(80)):  # plain, of a bootstrap, any
        for name, of_scikit_learn in (("roc_auc", sk.roc_auc_score), ("average_precision", sk.average_precision_score)):
            wanted = of_scikit_learn(answers, scores, sample_weight=weights)
            assert metrics.OF_SCORES[name](answers, scores, weights) == pytest.approx(wanted, abs=1e-12)
    assert metrics.roc_auc(answers, np.zeros(80)) == 0.5
    assert np.isnan(metrics.roc_auc(np.ones(80), scores)) and np.isnan(metrics.average_precision(np.zeros(80), scores))
