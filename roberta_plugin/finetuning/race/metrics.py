"""Accuracies of multiple choice, also for each level of RACE.

Shapes: N examples of the split.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.kinds.choices import LEVELS


def accuracies(given: NDArray[np.int64], labels: NDArray[np.int64], levels: NDArray[np.int64]) -> dict[str, float]:
    """Percent of right answers (N,): `accuracy` and, for RACE, `accuracy_middle` and `accuracy_high`.

    Examples without a label do not count; if no example has one, there is no accuracy.
    """
    groups = {"accuracy": labels >= 0}
    groups |= {f"accuracy_{name}": (labels >= 0) & (levels == index) for index, name in enumerate(LEVELS)}
    is_right = given == labels
    return {
        name: 100.0 * int(is_right[group].sum()) / int(group.sum()) for name, group in groups.items() if group.any()
    }
