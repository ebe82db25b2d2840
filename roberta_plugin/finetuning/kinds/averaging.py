"""Logits of one model or several -> the mean of their probabilities (ensembles of the paper's section 5.1).

Shapes: N examples of the split, S options of all of them; offsets (N + 1,): example i has the options offsets[i] to
offsets[i + 1]. For classification the options are the classes, the same number for every example.

Example: logits [0, 0, 2, 2] with offsets [0, 2, 4] -> probabilities [0.5, 0.5, 0.5, 0.5].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def probabilities(logits: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logits (S,) -> probabilities (S,) that sum to 1 over the options of each example."""
    counts = np.diff(offsets)
    values = logits.astype(np.float64)
    weights = np.exp(values - np.repeat(np.maximum.reduceat(values, offsets[:-1]), counts))
    result: NDArray[np.float64] = weights / np.repeat(np.add.reduceat(weights, offsets[:-1]), counts)
    return result


def mean_probabilities(members: Sequence[NDArray[Any]], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logits (S,) of each member -> the mean of their probabilities (S,)."""
    mean: NDArray[np.float64] = np.mean([probabilities(logits, offsets) for logits in members], axis=0)
    return mean


def class_probabilities(members: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Logits (N, C) of each member -> the mean of their probabilities (N, C)."""
    num_examples, num_classes = members[0].shape
    offsets = np.arange(0, members[0].size + 1, num_classes)
    return mean_probabilities([each.reshape(-1) for each in members], offsets).reshape(num_examples, num_classes)
