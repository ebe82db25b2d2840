"""Raw outputs for all windows -> the best answers to each question and the probability that it has none; their files.

For each window the model gives the probability that it holds the answer, and where the answer then starts and ends. The
probability of a span is the product of the three. The spans of all windows of a question compete with each other. The
probability of no answer is that of the window which is most likely to hold one: 1 - its probability of holding it.

Shapes: W windows of the split, P tokens of the passage in a window, M most tokens of an answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write
from roberta_plugin.kinds.questions import Decoded, Questions


def write_predictions(
    folder: Path,
    task: str,
    questions: Questions,
    decoded: Sequence[Decoded],
    predictions: Mapping[str, str],
    null: Mapping[str, float],
) -> None:
    """Write the files that `benchmark.score` names into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "predictions.json", predictions)
    n_best = {id_: _candidates(task, found) for id_, found in zip(questions.ids, decoded, strict=True)}
    _write_json(folder / "nbest_predictions.json", n_best)
    if task == "squad2":
        _write_json(folder / "null_odds.json", null)


def _candidates(task: str, found: Decoded) -> list[dict[str, Any]]:
    """Texts with their probabilities and characters of the passage; with SQuAD 2.0, no answer is among them."""
    entries: list[dict[str, Any]] = [
        {"text": text, "probability": math.exp(value), "start": start, "end": stop}
        for text, value, start, stop in found.candidates
    ]
    if task == "squad2":
        entries.append({"text": "", "probability": found.null_probability})
    return sorted(entries, key=lambda entry: -entry["probability"])


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path, "w") as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
