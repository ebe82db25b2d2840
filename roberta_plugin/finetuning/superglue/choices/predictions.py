"""Answers -> the files that the leaderboards take, one JSON object per row.

COPA            {"idx": 0, "label": 1}
ReCoRD          {"idx": 0, "label": "Rome"}
CommonsenseQA   {"id": "1afa02df", "answerKey": "A"}, the names of its data
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from roberta_plugin.files import atomic_write
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.kinds.span_metrics import score


def file_name(task: str, split: str) -> str:
    """Name of the file of predictions: TASK.jsonl for the test set, TASK.SPLIT.jsonl for others."""
    return f"{task}.jsonl" if split == "test" else f"{task}.{split}.jsonl"


def write_predictions(path: Path, task: str, split: PreparedSplit, given: Sequence[int]) -> None:
    """Write the option that is chosen in each row, in the task's form."""
    with atomic_write(path, "w") as file:
        for record, answer in zip(split.records(), given, strict=True):
            if task == "CommonsenseQA":
                content = {"id": record["id"], "answerKey": chr(ord("A") + answer)}
            else:
                content = {"idx": record["id"], "label": record["options"][answer] if task == "ReCoRD" else answer}
            file.write(json.dumps(content, ensure_ascii=False) + "\n")


def scores_of_texts(split: PreparedSplit, given: Sequence[int]) -> dict[str, float]:
    """`f1` and `exact_match` (0 to 1) of ReCoRD: each answer against the right one that fits best.

    Its official script compares normalized texts as SQuAD 1.1 does.
    """
    pairs = zip(split.records(), given, strict=True)
    found = [score("squad1", record["options"][answer], record["right"]) for record, answer in pairs]
    return {
        "f1": sum(each.f1 for each in found) / len(found),
        "exact_match": sum(each.exact for each in found) / len(found),
    }
