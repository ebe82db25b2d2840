"""Metrics of own data, as functions of how often each example counts, which is what the bootstrap varies.

Metrics but errors are in percent. One that is not defined, because a quotient is 0/0, is 0, as in scikit-learn.

Shapes: N examples, C labels, M thresholds. Weights (N,) are how often each example counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.kinds import metrics as of_counts

Numbers = NDArray[Any]
THRESHOLDS = np.arange(1, 100) / 100  # (M,), those that are tried


def confusion(answers: Numbers, predictions: Numbers, weights: Numbers, *, num_classes: int) -> Numbers:
    """Sums of weights (C, C): row is the right label, column the predicted one; both are ids (N,)."""
    pairs = answers.astype(np.int64) * num_classes + predictions.astype(np.int64)
    return np.bincount(pairs, weights, minlength=num_classes**2).reshape(num_classes, num_classes)


def of_classes(answers: Numbers, predictions: Numbers, weights: Numbers, *, num_classes: int) -> dict[str, float]:
    """Accuracy, which is also micro-F1; macro-F1 over the labels that occur; Matthews correlation (R_K of Gorodkin)."""
    counts = confusion(answers, predictions, weights, num_classes=num_classes)
    return {name: 100 * of_counts.OF_COUNTS[name](counts) for name in ("accuracy", "macro_f1", "mcc")}


def label_counts(answers: Numbers, predictions: Numbers, weights: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """True positives, predicted and actual positives per label, (C,) each; answers and predictions are bool (N, C)."""
    return weights @ (answers & predictions), weights @ predictions, weights @ answers


def of_labels(answers: Numbers, predictions: Numbers, weights: Numbers) -> dict[str, float]:
    """Micro-F1, macro-F1 over all labels, and the share of examples whose labels are all right, of two (N, C)."""
    right, predicted, present = label_counts(answers, predictions, weights)
    is_exact = (answers == predictions).all(axis=1)
    return {
        "micro_f1": 100 * float(f1(right.sum(), predicted.sum(), present.sum())),
        "macro_f1": 100 * float(f1(right, predicted, present).mean()),
        "exact_match": 100 * float(weights @ is_exact / weights.sum()),
    }


def f1(right: Any, predicted: Any, present: Any) -> Any:
    """2 * right / (predicted + present), elementwise; 0 where that is 0/0."""
    total = np.asarray(predicted + present, dtype=np.float64)
    return np.divide(2.0 * right, total, out=np.zeros_like(total), where=total > 0)


def threshold_counts(probabilities: Numbers, answers: Numbers) -> Numbers:
    """Of probabilities and answers (N, C): counts (M, 3, C) at each of `THRESHOLDS`, as `label_counts` has them."""
    ones = np.ones(len(answers))
    return np.array([label_counts(answers, probabilities >= threshold, ones) for threshold in THRESHOLDS])


def best_threshold(counts: Numbers) -> float:
    """The threshold with the best micro-F1, from counts (M, 3, C); of equal ones the one that is nearest to 0.5."""
    values = micro_f1(counts)
    best = np.flatnonzero(values >= values.max() - 1e-12)
    return float(THRESHOLDS[best[np.abs(THRESHOLDS[best] - 0.5).argmin()]])


def micro_f1(counts: Numbers) -> Numbers:
    """Counts (M, 3, C) -> micro-F1 (M,), from 0 to 1."""
    return np.asarray(f1(*counts.sum(axis=2).T))  # (M, 3, C) -> (M, 3) -> 3 x (M,)


def of_choices(is_right: Numbers, weights: Numbers) -> dict[str, float]:
    """Accuracy, of booleans (N,)."""
    return {"accuracy": 100 * float(weights @ is_right / weights.sum())}


def of_numbers(answers: Numbers, predictions: Numbers, weights: Numbers) -> dict[str, float]:
    """Pearson's and Spearman's correlation of two (N,), and their mean; mean absolute and root mean squared error.

    The errors are in units of the label.
    """
    share = weights / weights.sum()
    errors = predictions - answers
    found = {
        "pearson": 100 * pearson(predictions, answers, weights),
        "spearman": 100 * pearson(ranks(predictions, weights), ranks(answers, weights), weights),
    }
    found = {"pearson_spearman": (found["pearson"] + found["spearman"]) / 2, **found}
    return {**found, "mae": float(share @ np.abs(errors)), "rmse": float(np.sqrt(share @ errors**2))}


def pearson(x: Numbers, y: Numbers, weights: Numbers) -> float:
    """Linear correlation of two (N,), in float64; 0 where one of them is constant."""
    share, counted = weights / weights.sum(), weights.argmax()
    x, y = x - x[counted], y - y[counted]  # else the rounding of two constants would correlate
    x, y = x - share @ x, y - share @ y
    variances = (share @ x**2) * (share @ y**2)
    return float(share @ (x * y) / np.sqrt(variances)) if variances > 0 else 0.0


def ranks(values: Numbers, weights: Numbers) -> Numbers:
    """Rank of each value (N,) among the examples, each as often as it counts; equal values share the mean rank.

    Example: values [5, 7, 7], weights [2, 1, 1] stand for 5, 5, 7, 7 -> [1.5, 3.5, 3.5].
    """
    _, group = np.unique(values, return_inverse=True)
    counts = np.bincount(group, weights)
    return np.asarray((np.cumsum(counts) - counts + (counts + 1) / 2)[group])


def class_table(right: Numbers, predicted: Numbers, present: Numbers, labels: Sequence[str]) -> list[dict[str, Any]]:
    """A row per label, from counts (C,): precision, recall and F1 in percent, and how many examples have it.

    Of a label that no example has, nothing is measured, and the three are None.
    """
    # f1 of right, a and a is 2 * right / (a + a)
    shares = np.array([f1(right, predicted, predicted), f1(right, present, present), f1(right, predicted, present)])
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
