"""Metrics from confusion counts, or from predictions and answers, with a weight for each example.

A weight says how often an example counts; the bootstrap varies the weights. A metric that is not defined, because a
quotient is 0/0 or all answers are the same, is 0, as in scikit-learn: so a log shows a model that has learned nothing.
Shares are from 0 to 1, correlations from -1 to 1. The functions `measure_...` return metrics by name in percent, and
errors in units of the answers.

Shapes: N examples, C classes or labels, M thresholds; weights are (N,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
THRESHOLDS = np.arange(1, 100) / 100  # (M,), tried for several labels


def confusion(
    answers: Numbers, predictions: Numbers, weights: Numbers | None = None, *, num_classes: int
) -> NDArray[Any]:
    """Counts, or sums of weights (C, C): row is the right class, column the predicted one; both are ids (N,)."""
    pairs = answers.astype(np.int64) * num_classes + predictions.astype(np.int64)
    return np.bincount(pairs, weights, minlength=num_classes**2).reshape(num_classes, num_classes)


def accuracy(counts: Numbers) -> float:
    """Share of the right predictions, from counts (C, C)."""
    return _ratio(np.trace(counts), counts.sum())


def f1(counts: Numbers) -> float:
    """F1 of class 1, from counts (2, 2)."""
    return float(f1_of(counts[1, 1], counts[1].sum(), counts[:, 1].sum()))


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
    f1s: NDArray[np.float64] = f1_of(np.diagonal(counts), counts.sum(axis=1), counts.sum(axis=0))
    return f1s


def measure_classes(answers: Numbers, predictions: Numbers, weights: Numbers, *, num_classes: int) -> dict[str, float]:
    """Accuracy, which is also micro-F1; macro-F1 over the labels that occur; Matthews correlation (R_K of Gorodkin)."""
    counts = confusion(answers, predictions, weights, num_classes=num_classes)
    return {name: 100 * OF_COUNTS[name](counts) for name in ("accuracy", "macro_f1", "mcc")}


def roc_auc(answers: Numbers, scores: Numbers, weights: Numbers | None = None) -> float:
    """Share of the pairs of an example of class 1 and one of class 0 in which the first has the higher score.

    This is the area under the ROC curve; equal scores count half. NaN without examples of both classes.

    Args:
        answers: 0 or 1 (N,).
        scores: any numbers that grow with the probability of class 1 (N,).
        weights: how often each example counts (N,).
    """
    weights = np.ones(len(answers)) if weights is None else weights
    of_1 = weights * answers
    num_1, num_0 = of_1.sum(), weights.sum() - of_1.sum()
    if num_1 <= 0 or num_0 <= 0:
        return math.nan
    return float((of_1 @ ranks(scores, weights) - num_1 * (num_1 + 1) / 2) / (num_1 * num_0))


def average_precision(answers: Numbers, scores: Numbers, weights: Numbers | None = None) -> float:
    """Mean precision over the examples of class 1, each at its own score as threshold; arguments as `roc_auc`."""
    weights = np.ones(len(answers)) if weights is None else weights
    _, group = np.unique(-scores, return_inverse=True)  # the highest score first
    right, predicted = (np.bincount(group, each).cumsum() for each in (weights * answers, weights))
    if right[-1] <= 0:
        return math.nan
    precision = np.divide(right, predicted, out=np.zeros(len(right)), where=predicted > 0)
    return float(np.diff(right, prepend=0) @ precision / right[-1])


def label_counts(answers: Numbers, predictions: Numbers, weights: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """True positives, predicted and actual positives per label, (C,) each; answers and predictions are bool (N, C)."""
    return weights @ (answers & predictions), weights @ predictions, weights @ answers


def measure_labels(answers: Numbers, predictions: Numbers, weights: Numbers) -> dict[str, float]:
    """Micro-F1, macro-F1 over all labels, and the share of examples whose labels are all right, of two bool (N, C)."""
    right, predicted, present = label_counts(answers, predictions, weights)
    is_exact = (answers == predictions).all(axis=1)
    return {
        "micro_f1": 100 * float(f1_of(right.sum(), predicted.sum(), present.sum())),
        "macro_f1": 100 * float(f1_of(right, predicted, present).mean()),
        "exact_match": 100 * float(weights @ is_exact / weights.sum()),
    }


def f1_of(right: Any, predicted: Any, present: Any) -> Any:
    """2 * right / (predicted + present), elementwise; 0 where that is 0/0."""
    total = np.asarray(predicted + present, dtype=np.float64)
    return np.divide(2.0 * right, total, out=np.zeros_like(total), where=total > 0)


def micro_f1s(probabilities: Numbers, answers: Numbers) -> NDArray[np.float64]:
    """Micro-F1 of probabilities and answers (N, C) at each of `THRESHOLDS` (M,), from 0 to 1."""
    ones = np.ones(len(answers))
    counts = [label_counts(answers, probabilities >= threshold, ones) for threshold in THRESHOLDS]
    return np.asarray(f1_of(*np.array(counts).sum(axis=2).T))  # (M, 3, C) -> 3 x (M,) -> (M,)


def best_threshold(probabilities: Numbers, answers: Numbers) -> float:
    """The threshold with the best micro-F1 of probabilities and answers (N, C); among equally good ones, the one
    nearest to 0.5."""
    return _with_the_best(micro_f1s(probabilities, answers), THRESHOLDS)


def tuned_threshold(probabilities: Numbers, answers: Numbers, metric: str) -> float:
    """The threshold with the best value of a metric of `OF_COUNTS`; among equally good ones, the one nearest to 0.5.

    All thresholds between two neighboring probabilities give the same predictions. So only the middle between the two
    is tried, or 0.5 if it lies between them.

    Args:
        probabilities: probability of class 1 (N,), from 0 to 1.
        answers: 0 or 1 (N,).
        metric: name of the metric.

    Example: 0.1 of class 0, 0.2 and 0.3 of class 1  ->  0.15 for accuracy.
    """
    values, group = np.unique(probabilities, return_inverse=True)  # (M - 1,), (N,)
    lower, upper = np.append(0.0, values), np.append(values, 1.0)  # (M,)
    middle = (lower + upper) / 2
    middle = np.where(middle > lower, middle, upper)  # neighbors without a number between them
    thresholds = np.where((lower < 0.5) & (upper >= 0.5), 0.5, middle)
    of_1, of_all = np.bincount(group, answers), np.bincount(group)
    right, predicted = (np.append(each[::-1].cumsum()[::-1], 0) for each in (of_1, of_all))  # (M,)
    present, total = of_1.sum(), len(answers)
    possible = slice(None, -1 if values[-1] >= 1 else None)  # no threshold lies above a probability of 1
    of_metric = OF_COUNTS[metric]
    scores = [
        of_metric(np.array([[total - present - wrong, wrong], [present - hits, hits]]))
        for hits, wrong in zip(right[possible], (predicted - right)[possible], strict=True)
    ]
    return _with_the_best(np.array(scores), thresholds[possible])


def _with_the_best(values: Numbers, thresholds: Numbers) -> float:
    best = np.flatnonzero(values >= values.max() - 1e-12)
    return float(thresholds[best[np.abs(thresholds[best] - 0.5).argmin()]])


def measure_numbers(answers: Numbers, predictions: Numbers, weights: Numbers) -> dict[str, float]:
    """Pearson's and Spearman's correlation of two (N,), and their mean, as GLUE averages for STS-B; mean absolute and
    root mean squared error, in units of the label."""
    share = weights / weights.sum()
    errors = predictions - answers
    linear, of_ranks = 100 * pearson(predictions, answers, weights), 100 * spearman(predictions, answers, weights)
    correlations = {"pearson_spearman": (linear + of_ranks) / 2, "pearson": linear, "spearman": of_ranks}
    return {**correlations, "mae": float(share @ np.abs(errors)), "rmse": float(np.sqrt(share @ errors**2))}


def pearson(x: Numbers, y: Numbers, weights: Numbers | None = None) -> float:
    """Linear correlation of two (N,), in float64; 0 where one of them is constant."""
    weights = np.ones(len(x)) if weights is None else weights
    share, counted = weights / weights.sum(), weights.argmax()
    x, y = x.astype(np.float64), y.astype(np.float64)
    x, y = x - x[counted], y - y[counted]  # else the rounding of two constants would correlate
    x, y = x - share @ x, y - share @ y
    variances = (share @ x**2) * (share @ y**2)
    return float(share @ (x * y) / np.sqrt(variances)) if variances > 0 else 0.0


def spearman(x: Numbers, y: Numbers, weights: Numbers | None = None) -> float:
    """Correlation of the ranks of two (N,); equal values share the mean of their ranks."""
    weights = np.ones(len(x)) if weights is None else weights
    return pearson(ranks(x, weights), ranks(y, weights), weights)


def ranks(values: Numbers, weights: Numbers) -> Numbers:
    """Rank of each value (N,) among the examples, repeated by their weights; equal values share the mean rank.

    Example: values [5, 7, 7], weights [2, 1, 1] mean 5, 5, 7, 7 -> [1.5, 3.5, 3.5].
    """
    _, group = np.unique(values, return_inverse=True)
    counts = np.bincount(group, weights)
    return np.asarray((np.cumsum(counts) - counts + (counts + 1) / 2)[group])


def class_table(right: Numbers, predicted: Numbers, present: Numbers, labels: Sequence[str]) -> list[dict[str, Any]]:
    """A row per label, from counts (C,): precision, recall and F1 in percent, and the number of examples with it.

    If no example has a label, its precision, recall and F1 are None.
    """
    # f1 of right, a and a is 2 * right / (a + a)
    shares = np.array(
        [f1_of(right, predicted, predicted), f1_of(right, present, present), f1_of(right, predicted, present)]
    )
    return [
        {
            "label": label,
            **{
                name: 100 * float(value) if present[index] else None
                for name, value in zip(("precision", "recall", "f1"), shares[:, index], strict=True)
            },
            "support": int(present[index]),
        }
        for index, label in enumerate(labels)
    ]


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else 0.0


OF_COUNTS: dict[str, Callable[[Numbers], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "acc_and_f1": acc_and_f1,
    "mcc": mcc,
    "macro_f1": macro_f1,
}
OF_SCORES: dict[str, Callable[..., float]] = {"roc_auc": roc_auc, "average_precision": average_precision}


def measure_two_classes(answers: Numbers, predictions: Numbers, weights: Numbers | None = None) -> dict[str, float]:
    """All metrics of `OF_COUNTS` in percent, of two (N,)."""
    counts = confusion(answers, predictions, weights, num_classes=2)
    return {name: 100 * function(counts) for name, function in OF_COUNTS.items()}


def exact_match(answers: Numbers, predictions: Numbers, questions: Numbers) -> float:
    """Share of the questions whose answers all have the right label, from labels (N,): the EM of MultiRC.

    Example: answers [1, 0, 1], predictions [1, 0, 0], questions [0, 0, 1] -> 0.5.
    """
    _, of_row = np.unique(questions, return_inverse=True)
    wrong = np.bincount(of_row, weights=answers != predictions)
    return float(np.mean(wrong == 0))
