"""Scores of one model or several -> the mean of their probabilities (ensembles of the paper's section 5.1).

Shapes: N examples of the split, S options of all of them; offsets (N + 1,): example i has the options offsets[i] to
offsets[i + 1]. Classes are options of which every example has the same number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def probabilities(scores: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scores (S,) -> probabilities (S,) that sum to 1 over the options of each example."""
    counts = np.diff(offsets)
    values = scores.astype(np.float64)
    weights = np.exp(values - np.repeat(np.maximum.reduceat(values, offsets[:-1]), counts))
    result: NDArray[np.float64] = weights / np.repeat(np.add.reduceat(weights, offsets[:-1]), counts)
    return result


def mean_probabilities(members: Sequence[NDArray[np.float32]], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scores (S,) of each member -> the mean of their probabilities (S,)."""
    mean: NDArray[np.float64] = np.mean([probabilities(scores, offsets) for scores in members], axis=0)
    return mean
