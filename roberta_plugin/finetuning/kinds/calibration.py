"""Probabilities and right labels -> are they right as often as they say? Temperature, expected calibration error, bins.

A model that learned for many updates is surer than it is right. Divided by one number, the temperature, its logits keep
their order, and so its labels, but the probabilities fit (Guo et al. 2017, arXiv 1706.04599, sections 3 and 4.2).

Shapes: N examples, C labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 15  # section 5
_LIMITS = (0.05, 20.0)  # of a temperature
_STEPS = 60  # of bisection: more than float64 can tell apart
Numbers = NDArray[Any]


def tempered(probabilities: Numbers, temperature: float) -> NDArray[np.float64]:
    """The probabilities (N, C) of logits that are divided by the temperature."""
    logits = _logs(probabilities) / temperature
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    scaled: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return scaled


def fitted_temperature(probabilities: Numbers, answers: Numbers) -> float:
    """The temperature with the smallest cross-entropy, from 0.05 to 20; 1 if every answer is the most probable one.

    Then there is no error to fit: the smaller the temperature, the smaller the loss, and the worse on other data.

    Args:
        probabilities: of a model or an ensemble (N, C).
        answers: the numbers of the right labels (N,).
    """
    logits = _logs(probabilities)
    right = logits[np.arange(len(answers)), answers]
    if (right >= logits.max(axis=1)).all():
        return 1.0
    low, high = np.log(_LIMITS)
    for _ in range(_STEPS):  # the derivative by 1 / temperature grows with it, so it has one zero at most
        middle = (low + high) / 2
        mean = (tempered(probabilities, np.exp(middle)) * logits).sum(axis=1)
        low, high = (middle, high) if (mean - right).mean() > 0 else (low, middle)
    return float(np.exp((low + high) / 2))


def losses(probabilities: Numbers, answers: Numbers) -> NDArray[np.float64]:
    """Cross-entropy of each example (N,) in nats."""
    return -_logs(probabilities)[np.arange(len(answers)), answers]


def reliability(probabilities: Numbers, answers: Numbers) -> dict[str, float]:
    """How well the probability of the most probable label says how often it is right.

    Returns:
        `ece`, the expected calibration error in percent: the mean over the examples of the distance between accuracy
        and mean probability in its bin, of 15 equally wide ones; `loss`, the mean cross-entropy in nats.
    """
    best = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == answers
    place = np.minimum((best * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    surest, right = (np.bincount(place, weights, minlength=NUM_BINS) for weights in (best, is_right))
    return {
        "ece": 100 * float(np.abs(surest - right).sum() / len(best)),
        "loss": float(losses(probabilities, answers).mean()),
    }


def _logs(probabilities: Numbers) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    return logs
