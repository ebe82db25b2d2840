"""Official metrics of SuperGLUE that GLUE does not have; shares from 0 to 1.

Shapes: N rows of a split, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.kinds import metrics as glue


def macro_f1(counts: NDArray[Any]) -> float:
    """Mean of the F1 of each class, from counts (C, C): the second metric of CB.

    A class that neither occurs nor is predicted has the F1 0, as in SuperGLUE's baseline.
    """
    return float(np.mean(glue.class_f1s(counts)))


def exact_match(answers: NDArray[Any], predictions: NDArray[Any], questions: NDArray[Any]) -> float:
    """Share of the questions all of whose answers are judged rightly, from labels (N,): the EM of MultiRC.

    Example: answers [1, 0, 1], predictions [1, 0, 0], questions [0, 0, 1] -> 0.5.
    """
    _, of_row = np.unique(questions, return_inverse=True)
    wrong = np.bincount(of_row, weights=answers != predictions)
    return float(np.mean(wrong == 0))


def scores(
    names: tuple[str, ...],
    answers: NDArray[Any],
    predictions: NDArray[Any],
    *,
    num_classes: int,
    questions: NDArray[Any] | None = None,
) -> dict[str, float]:
    """Metrics by name, from labels (N,); `questions` (N,) are the numbers of MultiRC's questions."""
    counts = glue.confusion(answers, predictions, num_classes=num_classes)
    found = {"accuracy": glue.accuracy(counts), "macro_f1": macro_f1(counts)}
    if questions is not None:
        found |= {"f1a": glue.f1(counts), "exact_match": exact_match(answers, predictions, questions)}
    return {name: found[name] for name in names}
