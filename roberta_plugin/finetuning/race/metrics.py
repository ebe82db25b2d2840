"""Raw outputs of one model or several -> probabilities of the options, answers, accuracies, a file of predictions.

Shapes: N examples of the split, S options of all of them; first (N + 1,): example i has the options first[i] to
first[i + 1].
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.race.reader import LEVELS


def answers(chances: NDArray[np.float64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most probable option of each example, from 0; the earlier one of two that are equal (N,)."""
    return np.array([chances[start:stop].argmax() for start, stop in pairwise(first.tolist())], dtype=np.int64)


def accuracies(given: NDArray[np.int64], labels: NDArray[np.int64], levels: NDArray[np.int64]) -> dict[str, float]:
    """Percent of right answers: `accuracy` and, where RACE's levels are told, `accuracy_middle` and `accuracy_high`.

    Examples without a label do not count; where none has one, there is no accuracy.
    """
    groups = {"accuracy": labels >= 0}
    groups |= {f"accuracy_{name}": (labels >= 0) & (levels == index) for index, name in enumerate(LEVELS)}
    is_right = given == labels
    return {
        name: 100.0 * int(is_right[group].sum()) / int(group.sum()) for name, group in groups.items() if group.any()
    }


def write_predictions(
    path: Path, split: PreparedSplit, given: NDArray[np.int64], chances: NDArray[np.float64], *, letters: bool
) -> None:
    """Write a JSON object a line: `id`, `question`, `answer` (a letter as in RACE, or an index) and `probabilities`."""
    with atomic_write(path, "w") as file:
        spans = pairwise(split.first.tolist())
        for record, answer, (start, stop) in zip(split.records(), given.tolist(), spans, strict=True):
            entry = {
                "id": record["id"],
                "question": record["question"],
                "answer": chr(ord("A") + answer) if letters else answer,
                "probabilities": [round(chance, 6) for chance in chances[start:stop].tolist()],
            }
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
