"""Pairs of a question compete."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def decide(logits: NDArray[np.floating], questions: NDArray[np.integer]) -> NDArray[np.int64]:
    """Logits (N,) of pairs and the numbers of their questions (N,) -> 1 if the sentence is the answer, else 0 (N,).

    The best of several sentences of a question is the answer; ties go to the first. A single sentence is the answer if
    its logit is above 0.
    """
    order = np.lexsort((-logits, questions))  # stable: question by question, the best first
    is_best = np.ones(len(order), dtype=bool)
    is_best[1:] = questions[order[1:]] != questions[order[:-1]]
    predictions = np.empty(len(order), dtype=np.int64)
    predictions[order] = is_best
    _, inverse, counts = np.unique(questions, return_inverse=True, return_counts=True)
    is_alone = counts[inverse] == 1
    predictions[is_alone] = logits[is_alone] > 0
    return predictions
