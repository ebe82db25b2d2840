"""Raw outputs of one model or several -> probabilities of the options, answers, and their file.

Shapes: N examples of the split, S options of all of them; offsets (N + 1,): example i has the options offsets[i] to
offsets[i + 1].
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.prepared import PreparedSplit


def write_predictions(
    path: Path, split: PreparedSplit, given: NDArray[np.int64], probabilities: NDArray[np.float64], *, letters: bool
) -> None:
    """Write one JSON object per line: `id`, `question`, `answer` (a letter or an index) and `probabilities`."""
    with atomic_write(path, "w") as file:
        spans = pairwise(split.offsets.tolist())
        for record, answer, (start, stop) in zip(split.records(), given.tolist(), spans, strict=True):
            entry = {
                "id": record["id"],
                "question": record["question"],
                "answer": chr(ord("A") + answer) if letters else answer,
                "probabilities": [round(value, 6) for value in probabilities[start:stop].tolist()],
            }
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
