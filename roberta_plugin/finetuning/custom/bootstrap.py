"""Confidence intervals of metrics by the bootstrap (Efron & Tibshirani 1993, chapter 13: the percentile interval).

Examples are drawn with replacement, as many as there are; a metric of each of 1,000 such samples is computed; the
interval holds the middle 95 % of the values. It says how much the metric depends on which examples the split happens to
have, not how much it depends on the seed of the training.

Shapes: N examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

NUM_SAMPLES, COVERAGE, SEED = 1000, 0.95, 1


def intervals(
    measure: Callable[[NDArray[np.float64]], dict[str, float]], num_examples: int
) -> dict[str, tuple[float, float]]:
    """The interval of each metric; the same in every call.

    `measure` maps how often each example counts (N,) to the metrics.
    """
    rng = np.random.default_rng(SEED)
    found: dict[str, list[float]] = {}
    for _ in range(NUM_SAMPLES):
        drawn = rng.integers(num_examples, size=num_examples)
        weights = np.bincount(drawn, minlength=num_examples).astype(np.float64)
        for name, value in measure(weights).items():
            if not math.isnan(value):  # a sample without an example of a label
                found.setdefault(name, []).append(value)
    tail = 50 * (1 - COVERAGE)
    return {
        name: (float(np.percentile(values, tail)), float(np.percentile(values, 100 - tail)))
        for name, values in found.items()
    }
