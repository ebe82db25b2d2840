"""GLUE's metrics: from confusion counts if these suffice, otherwise from predictions and answers.

Shares are from 0 to 1, correlations from -1 to 1. A metric that is not defined, because all answers or all predictions
are the same, is 0, as in scikit-learn: a log then shows a model that has learned nothing.

Shapes: N examples, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy  # its modules are imported when they are first used
from numpy.typing import NDArray

Numbers = NDArray[Any]


def confusion(answers: Numbers, predictions: Numbers, *, num_classes: int) -> NDArray[np.int64]:
    """Counts (C, C): row is the right class, column the predicted one; `answers` and `predictions` are ids (N,)."""
    pairs = answers.astype(np.int64) * num_classes + predictions.astype(np.int64)
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def accuracy(counts: Numbers) -> float:
    """Share of the right predictions, from counts (C, C)."""
    return _ratio(np.trace(counts), counts.sum())


def f1(counts: Numbers) -> float:
    """F1 of class 1, from counts (2, 2)."""
    return _ratio(2 * counts[1, 1], counts[1].sum() + counts[:, 1].sum())


def acc_and_f1(counts: Numbers) -> float:
    """Mean of accuracy and F1, as GLUE averages MRPC and QQP."""
    return (accuracy(counts) + f1(counts)) / 2


def mcc(counts: Numbers) -> float:
    """Matthews correlation, from counts (C, C).

    For more than two classes this is R_K of Gorodkin 2004, "Comparing two K-category assignments by a K-category
    correlation coefficient": R_3 is the metric of GLUE's diagnostic set.
    """
    counts = counts.astype(np.float64)
    total, correct = counts.sum(), np.trace(counts)
    answered, predicted = counts.sum(axis=1), counts.sum(axis=0)  # (C, C) -> (C,), (C,)
    covariance = correct * total - answered @ predicted
    return _ratio(covariance, np.sqrt((total**2 - predicted @ predicted) * (total**2 - answered @ answered)))


def macro_f1(counts: Numbers) -> float:
    """Mean of the F1 of the classes, from counts (C, C); a class without an answer or a prediction does not count."""
    occurs = (counts.sum(axis=1) + counts.sum(axis=0)) > 0  # (C,)
    return float(np.mean(class_f1s(counts)[occurs])) if occurs.any() else 0.0


def class_f1s(counts: Numbers) -> NDArray[np.float64]:
    """F1 of each class (C,), from counts (C, C); 0 for a class without an answer or a prediction."""
    total = (counts.sum(axis=1) + counts.sum(axis=0)).astype(np.float64)  # right answers + predictions
    f1s: NDArray[np.float64] = np.divide(2 * np.diagonal(counts), total, out=np.zeros_like(total), where=total > 0)
    return f1s


def pearson(predictions: Numbers, answers: Numbers) -> float:
    """Linear correlation of two (N,)."""
    return _correlation(scipy.stats.pearsonr, predictions, answers)


def spearman(predictions: Numbers, answers: Numbers) -> float:
    """Correlation of the ranks of two (N,); equal values share the mean of their ranks."""
    return _correlation(scipy.stats.spearmanr, predictions, answers)


def pearson_spearman(predictions: Numbers, answers: Numbers) -> float:
    """Mean of the two, as GLUE averages STS-B."""
    return (pearson(predictions, answers) + spearman(predictions, answers)) / 2


def mae(predictions: Numbers, answers: Numbers) -> float:
    """Mean absolute error of two (N,), in units of the answers."""
    return float(np.abs(predictions - answers).mean())


def rmse(predictions: Numbers, answers: Numbers) -> float:
    """Root of the mean squared error of two (N,), in units of the answers."""
    return float(np.sqrt(((predictions - answers) ** 2).mean()))


def as_written(predictions: Numbers, limits: tuple[float, float]) -> NDArray[np.float64]:
    """Numbers (N,) as the file of predictions has them: within the task's limits, with three decimals."""
    return np.clip(predictions.astype(np.float64), *limits).round(3)


OF_COUNTS: dict[str, Callable[[Numbers], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "acc_and_f1": acc_and_f1,
    "mcc": mcc,
    "macro_f1": macro_f1,
}
OF_PREDICTIONS: dict[str, Callable[[Numbers, Numbers], float]] = {
    "pearson": pearson,
    "spearman": spearman,
    "pearson_spearman": pearson_spearman,
}


def _correlation(statistic: Callable[..., Any], predictions: Numbers, answers: Numbers) -> float:
    """The statistic in float64; 0 where it is not defined."""
    if len(answers) < 2 or np.ptp(predictions) == 0 or np.ptp(answers) == 0:
        return 0.0
    return float(statistic(predictions.astype(np.float64), answers.astype(np.float64)).statistic)


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else 0.0
