"""Trainings that cost the same: updates at an equal budget, and learning rates for other batches (the paper's Table 3).

The paper compares batches of 256, 2K and 8K sequences "for the same number of passes through the training data"
(section 4.3): updates times batch size stays the same, and the learning rate is chosen for each. `roberta study` makes
such comparisons.

Example: 1M updates of 256 sequences with learning rate 1e-4, in batches of 2,048:

    equal_updates(1_000_000 * 256, of_update=2048), scaled_rate(1e-4, 256, 2048, rule="sqrt")
    # 125,000 updates, learning rate 2.83e-4; the paper's Table 3 has 125K and 7e-4
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

RULES: Mapping[str, Callable[[float], float]] = {"sqrt": math.sqrt, "linear": float}
"""Rules for the learning rate from the ratio of two batches."""


def equal_updates(amount: float, *, of_update: float) -> int:
    """Number of updates that use up a budget, rounded, at least one.

    Example: 256 pairs of 55 tokens are 14,080 tokens; 1M updates of 256 x 512 tokens take 9,309,091 such updates.
    """
    return max(1, round(amount / of_update))


def scaled_rate(learning_rate: float, batch_size: float, other_batch_size: float, *, rule: str) -> float:
    """The learning rate for another batch; both batches in sequences or both in tokens.

    sqrt keeps the variance of an update (Krizhevsky 2014, section 5; Hoffer et al. 2017), linear the sum of the updates
    of an epoch (Goyal et al. 2017). The paper tunes it: from 256 to 2K it lies between sqrt and linear.

    Example: from 256 to 1024 sequences, 1e-4 becomes 2e-4 by sqrt and 4e-4 by linear.
    """
    if rule not in RULES:
        raise ValueError(f"The rule of the learning rate must be {' or '.join(RULES)}, got {rule!r}.")
    return learning_rate * RULES[rule](other_batch_size / batch_size)
